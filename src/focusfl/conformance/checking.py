"""Drive an implementation through all rows; judge where it ends and whose rule it follows."""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path as File
from typing import Any, Literal, NamedTuple

import numpy as np

from focusfl.conformance import rules
from focusfl.conformance.driver import Driver, Failed, NotApplicable, as_make
from focusfl.conformance.problem import LR, ROWS, Problem, Row, standard
from focusfl.conformance.process import Process
from focusfl.core.validation import check_positive, shown, unknown

Word = Literal[
    "exact",  # at the optimum, to rounding, and stays there
    "biased",  # settled elsewhere, or around it
    "diverged",
    "unsettled",  # neither there nor at rest when the rounds were over
    "failed",  # could not be run
    "not applicable",
]

EXACT = {False: 1e-8, True: 1e-5}  # share of the first error, by whether it is single
STAYS = 20  # rounds that an exact run must stay there
BLOWN_UP = 1e4  # times the first error
FALLS = 0.8  # a level that is below this share of the one before still falls
GROWS = 1.25  # a cloud's level may come out so many times the one before
MOVES = 0.05  # share of the whole way that means of quarters may be apart at rest
ROUNDS = 1200  # rounds of what is not exact before; twice if it neither falls nor rests
AT_ONCE = 100  # rounds between looks
SMALLER = 4  # what is not exact is run again with a step so many times smaller
GROWN = 10.0  # times the first error: what breaks past it has diverged
SAME_PATH = {False: 1e-6, True: 1e-4}  # two paths are one, by whether precision is single

Watch = Callable[[str, int], Any]  # (row, rounds done)


@dataclass(frozen=True)
class RowReport:
    """What became of an implementation in one row."""

    row: str
    verdict: Word
    reason: str
    error: float | None = None  # its level at the end; 1 is where it began
    error_smaller_step: float | None = None  # the same with a quarter of the step
    rounds: int = 0
    like: tuple[str, ...] = ()  # rules whose models it has, round by round
    nearest: str = ""  # if there is none, the rule it stays with longest
    leaves_in: int | None = None  # the round in which it leaves that


@dataclass(frozen=True)
class Report:
    """What became of an implementation in all rows."""

    rows: tuple[RowReport, ...]
    like: tuple[str, ...]  # rules that it follows in every row that it could do
    rules: int  # how many are known

    @property
    def exact(self) -> bool:
        """Whether every row that it could do ended at the optimum; not if none did."""
        done = [row for row in self.rows if row.verdict != "not applicable"]
        return bool(done) and all(row.verdict == "exact" for row in done)

    def as_dict(self) -> dict:
        """For JSON."""
        return {"exact": self.exact, **asdict(self)}

    def words(self) -> str:
        """Say whom it behaves like, in a sentence."""
        if self.like:
            return f"behaves like {' or '.join(self.like)}"
        compared = [row for row in self.rows if row.like or row.nearest]
        if not compared:
            return "could not be compared with any rule"
        alike = {
            rule.name: [row for row in compared if _agrees(rule, row)] for rule in rules.rules()
        }
        name = max(alike, key=lambda name: len(alike[name]))
        others = [row for row in compared if row not in alike[name]]
        parts = [f"behaves like {name} (in {_names(alike[name])})"] if alike[name] else []
        if other := [row for row in others if row.like]:
            parts.append(f"like {other[0].like[0]} (in {_names(other)})")
        if unlike := [row for row in others if not row.like]:
            where = f"like none of {self.rules} rules (in {_names(unlike)})"
            parts.append(f"{'' if parts else 'behaves '}{where}, nearest {unlike[0].nearest}")
        return "; ".join(parts)

    def __str__(self) -> str:
        lines = [f"{r.row:8} {r.verdict:14} {r.reason}" for r in self.rows]
        return "\n".join([*lines, self.words()])


def check(
    implementation: Any,
    *,
    rows: Collection[str] = tuple(ROWS),
    limit: float = 60.0,
    python: str = "",
    folder: str | File = ".",
    watch: Watch | None = None,
) -> Report:
    """Find out where a federated implementation converges to, and whose rule it is.

    An object is driven in this process, and the clock is looked at between rounds. A
    name "module:object" is driven in a process of its own, killed if a round hangs.

    Args:
        implementation: make(problem), a function or a class, which gives an object with
            start(), round(state, participants, lost) and model(state); its name as
            "module:object"; or an `Algorithm` of the library's contract.
        rows: names of `ROWS`, the ways of taking part that are tried.
        limit: seconds that a row may take at one step.
        python: another interpreter for a name, such as that of another environment;
            it needs numpy.
        folder: where a named module is looked for first.
        watch: called with a row's name and its rounds, as they are done.
    """
    if lacking := [name for name in rows if name not in ROWS]:
        raise ValueError(unknown("row", lacking[0], ROWS))
    if not rows:
        raise ValueError(f"rows must name one at least; known: {', '.join(ROWS)}.")
    check_positive("limit", limit)
    with ExitStack() as ending:
        if isinstance(implementation, str):
            if not all(implementation.partition(":")):
                raise ValueError(f"{implementation!r} must be like my_module:make.")
            process = Process(implementation, limit, python, File(folder))
            ending.callback(process.close)
            start: Callable[[Row, float], Any] = process.open
        else:
            make = as_make(implementation)
            if not callable(make):
                raise ValueError(
                    "implementation must be make(problem), its name as module:object, "
                    f"or an Algorithm; got {shown(implementation)}."
                )
            start = partial(Driver, make, limit=limit)
        reports = tuple(_row(start, ROWS[name], watch) for name in rows)
    return Report(reports, _like_in_all(reports), len(rules.rules()))


class Ending(NamedTuple):
    """Where a path of models ends."""

    word: Word
    error: float  # level over the last quarter, as a share of the first error
    rate: float = np.nan  # factor per round, from the last two quarters
    at: int = 0  # the round in which it diverged


def judge(problem: Problem, models: np.ndarray, single: bool) -> Ending:
    """Judge a path of models after rounds 1, 2, ...

    At rest is what no longer falls, from the third quarter to the last, and whose mean
    has no longer moved: a slow fall is neither. A cloud around a point is at rest.
    """
    finite = np.isfinite(models).all(axis=1)
    errors = problem.error(models[finite])
    if not finite.all() or errors.max() > BLOWN_UP:
        beyond = ~finite
        beyond[finite] |= errors > BLOWN_UP
        return Ending("diverged", np.inf, at=int(np.argmax(beyond)) + 1)
    if len(errors) >= STAYS and (errors[-STAYS:] <= EXACT[single]).all():
        return Ending("exact", float(errors[-STAYS:].max()))
    if len(errors) < 4:
        return Ending("unsettled", float(errors[-1]))
    third, last = np.array_split(np.arange(len(models)), 4)[2:]
    before, level = (_level(errors[part]) for part in (third, last))
    rate = float((level / before) ** (1 / len(last)))
    mean = [models[part].mean(axis=0) for part in (third, last)]
    moved = np.linalg.norm(mean[1] - mean[0])
    way = np.linalg.norm(mean[1] - problem.x0)
    resting = FALLS * before <= level <= GROWS * before and moved <= MOVES * way
    return Ending("biased" if resting else "unsettled", level, rate)


def _level(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


class Run(NamedTuple):
    """One row at one step."""

    models: np.ndarray
    is_single: bool
    is_late: bool  # its time was over
    ending: Ending

    def __str__(self) -> str:
        """Say how a run ends that is not exact."""
        end, rounds = self.ending, len(self.models)
        if end.word == "biased":
            return f"rests {end.error:.2g} away"
        if end.word == "diverged":
            return f"in round {end.at}"
        late = ", when its time was over" * self.is_late
        pace = f", a factor {end.rate:.5f} each" * bool(np.isfinite(end.rate))
        return f"{end.error:.2g} away after {rounds} rounds{pace}{late}"


def _row(start: Callable, row: Row, watch: Watch | None) -> RowReport:
    """Run one row, at one step or two."""
    tell = partial(watch, row.name) if watch else lambda done: None
    try:
        run = _run(start, row, LR, tell)
    except NotApplicable as why:
        return RowReport(row.name, "not applicable", str(why))
    except Failed as why:
        return RowReport(row.name, "failed", str(why))
    end, rounds, again = run.ending, len(run.models), None
    reason = f"error {end.error:.0e} after {rounds} rounds"
    if end.word != "exact":
        try:
            again = _run(start, row, LR / SMALLER, lambda done: tell(done + rounds)).ending
            second = _in_short(again, end)
        except Failed as why:
            second = str(why)
        reason = f"{run}; with a step {SMALLER} times smaller {second}"
    like, nearest, leaves = _rule(row, run.models, run.is_single)
    error, smaller = (e.error if e and np.isfinite(e.error) else None for e in (end, again))
    return RowReport(row.name, end.word, reason, error, smaller, rounds, like, nearest, leaves)


def _run(start: Callable, row: Row, lr: float, tell: Callable) -> Run:
    """Go on until it is exact, has diverged or has had its rounds or its time.

    Raise Failed if the model is no number before it has grown.
    """
    problem, driver = standard().at(lr), start(row, lr)
    models = np.empty((0, problem.dim))
    while True:
        path = driver.go(AT_ONCE)
        models = np.concatenate([models, path.models])
        tell(len(models))
        end = judge(problem, models, path.single)
        if end.word == "diverged":
            _check_growth(models)
        is_settled = end.word == "biased" or end.rate < 1
        if end.word in ("exact", "diverged") or len(models) >= ROUNDS * (2 - is_settled):
            return Run(models, path.single, False, end)
        if path.late:  # at rest it may be, but not for as long as is asked
            return Run(models, path.single, True, end._replace(word="unsettled"))


def _check_growth(models: np.ndarray) -> None:
    """Raise Failed if models are not finite all of a sudden."""
    is_finite = np.isfinite(models).all(axis=1)
    first = int(np.argmin(is_finite))
    if is_finite.all() or first and standard().error(models[first - 1]) > GROWN:
        return
    raise Failed(f"model(state) is not finite after round {first + 1}.")


def _in_short(again: Ending, first: Ending) -> str:
    """Say how the second run ends, with the smaller step."""
    if again.word == first.word == "biased":
        less = "less, " if again.error < first.error / 2 else "still "
        return f"{less}{again.error:.2g}"
    if again.word == first.word == "diverged":
        return "too"
    end = f", {again.error:.2g} away" * (again.word in ("biased", "unsettled"))
    return f"it is {again.word}{end}"


def _rule(row: Row, models: np.ndarray, single: bool) -> tuple[tuple[str, ...], str, int | None]:
    """The rules whose models these are; else the one they stay with longest."""
    away = rules.distances(row, models)
    same = {name for name, far in away.items() if (far <= SAME_PATH[single]).all()}
    if same:
        known = rules.rules()
        plain = (r.name for r in known if r.name in same and r.of not in same)
        return tuple(plain), "", None

    def stays(name: str) -> tuple[int, float]:
        left = np.flatnonzero(~(away[name] <= SAME_PATH[single]))
        far = np.nan_to_num(away[name], nan=np.inf)
        return int(left[0]), -float(far.max())

    nearest = max(away, key=stays)
    return (), nearest, stays(nearest)[0] + 1


def _like_in_all(rows: tuple[RowReport, ...]) -> tuple[str, ...]:
    """Rules that agree in every row that could be compared."""
    compared = [row for row in rows if row.like or row.nearest]
    alike = {
        rule.name: rule
        for rule in rules.rules()
        if compared and all(_agrees(rule, row) for row in compared)
    }
    return tuple(name for name, rule in alike.items() if rule.of not in alike)


def _agrees(rule: rules.Rule, row: RowReport) -> bool:
    """Whether a row's models are a rule's, or where nothing is lost its plain one's."""
    other = "" if ROWS[row.row].loses else rule.of
    return (other or rule.name) in row.like


def _names(rows: list[RowReport]) -> str:
    return ", ".join(row.row for row in rows)

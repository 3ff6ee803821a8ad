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
        """Whom it behaves like, in a sentence."""
        if self.like:
            return f"behaves like {' or '.join(self.like)}"
        compared = [row for row in self.rows if row.like or row.nearest]
        if not compared:
            return "could not be compared with any rule"

        def follows(rule: rules.Rule) -> list[RowReport]:
            return [row for row in compared if _agrees(rule, row)]

        most = max(rules.rules(), key=lambda rule: len(follows(rule)))
        alike = follows(most)
        rest = [row for row in compared if row not in alike]
        said = [f"behaves like {most.name} (in {_names(alike)})"] if alike else []
        if others := [row for row in rest if row.like]:
            said.append(f"like {others[0].like[0]} (in {_names(others)})")
        if none := [row for row in rest if not row.like]:
            where = f"like none of {self.rules} rules (in {_names(none)})"
            said.append(f"{'' if said else 'behaves '}{where}, nearest {none[0].nearest}")
        return "; ".join(said)

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
        found = tuple(_row(start, ROWS[name], watch) for name in rows)
    return Report(found, _like_in_all(found), len(rules.rules()))


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
    single: bool
    late: bool  # its time was over
    ending: Ending


def _row(start: Callable, row: Row, watch: Watch | None) -> RowReport:
    """One row, at one step or two."""
    tell = partial(watch, row.name) if watch else lambda done: None
    try:
        run = _run(start, row, LR, tell)
    except NotApplicable as why:
        return RowReport(row.name, "not applicable", str(why))
    except Failed as why:
        return RowReport(row.name, "failed", str(why))
    if (wrong := _suddenly(run)) is not None:
        return RowReport(row.name, "failed", wrong)
    got, rounds, again = run.ending, len(run.models), None
    reason = f"error {got.error:.0e} after {rounds} rounds"
    if got.word != "exact":
        try:
            smaller = LR / SMALLER
            again = _run(start, row, smaller, lambda n: tell(n + rounds)).ending
            second = _in_short(again, got)
        except Failed as why:
            second = str(why)
        reason = f"{_at_first(run)}; with a step {SMALLER} times smaller {second}"
    like, nearest, leaves = _rule(row, run.models, run.single)
    return RowReport(
        row.name, got.word, reason, _number(got), _number(again), rounds,
        like, nearest, leaves,
    )  # fmt: skip


def _run(start: Callable, row: Row, lr: float, tell: Callable) -> Run:
    """Go on until it is exact, has diverged or has had its rounds or its time."""
    problem, driver = standard().at(lr), start(row, lr)
    models = np.empty((0, problem.dim))
    while True:
        path = driver.go(AT_ONCE)
        models = np.concatenate([models, path.models])
        tell(len(models))
        got = judge(problem, models, path.single)
        settled = got.word == "biased" or got.rate < 1
        if got.word in ("exact", "diverged") or len(models) >= ROUNDS * (2 - settled):
            return Run(models, path.single, False, got)
        if path.late:  # at rest it may be, but not for as long as is asked
            return Run(models, path.single, True, got._replace(word="unsettled"))


def _suddenly(run: Run) -> str | None:
    """What is wrong with a model that is no number before it has grown."""
    finite = np.isfinite(run.models).all(axis=1)
    if finite.all():
        return None
    bad = int(np.argmin(finite))
    grown = bad and standard().error(run.models[bad - 1]) > GROWN
    return None if grown else f"model(state) is not finite after round {bad + 1}."


def _at_first(run: Run) -> str:
    """A run that is not exact, in words."""
    got, rounds = run.ending, len(run.models)
    if got.word == "biased":
        return f"rests {got.error:.2g} away"
    if got.word == "diverged":
        return f"in round {got.at}"
    when = ", when its time was over" * run.late
    pace = f", a factor {got.rate:.5f} each" * bool(np.isfinite(got.rate))
    return f"{got.error:.2g} away after {rounds} rounds{pace}{when}"


def _in_short(again: Ending, first: Ending) -> str:
    """The second run, with the smaller step."""
    if again.word == first.word == "biased":
        less = "less, " if again.error < first.error / 2 else "still "
        return f"{less}{again.error:.2g}"
    if again.word == first.word == "diverged":
        return "too"
    end = f", {again.error:.2g} away" * (again.word in ("biased", "unsettled"))
    return f"it is {again.word}{end}"


def _number(got: Ending | None) -> float | None:
    return got.error if got and np.isfinite(got.error) else None


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
    found = {
        rule.name: rule
        for rule in rules.rules()
        if compared and all(_agrees(rule, row) for row in compared)
    }
    return tuple(name for name, rule in found.items() if rule.of not in found)


def _agrees(rule: rules.Rule, row: RowReport) -> bool:
    """Whether a row's models are a rule's, or where nothing is lost its plain one's."""
    other = "" if ROWS[row.row].loses else rule.of
    return (other or rule.name) in row.like


def _names(rows: list[RowReport]) -> str:
    return ", ".join(row.row for row in rows)

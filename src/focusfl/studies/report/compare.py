"""Two studies side by side: what got better or worse, beyond the spread over seeds."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from focusfl.studies.merge import settings
from focusfl.studies.report.columns import (
    COLUMNS,
    SECONDS_PER_ROUND,
    WORST_CLIENT,
    Column,
    Quartiles,
    column,
)
from focusfl.studies.report.groups import Group, grouped
from focusfl.studies.store import Study
from focusfl.studies.verdict import EXACT

# Of the seconds: that much they differ from one time to the next. Runs of one program
# share a stopwatch, so that the spread over seeds says nothing of it.
JITTER = 0.5
ROUNDING = 1e-3  # of all else: another machine adds in another order
HEADERS = ("participation", "algorithm", "", "A", "B", "B / A", "")


class Change(NamedTuple):
    """One number of one group of runs, before and after."""

    participation: str
    algorithm: str
    label: str  # the same for people, with its step size where there are several
    what: str  # the name of its column
    before: Quartiles
    after: Quartiles
    word: str  # better, worse or same

    @property
    def ratio(self) -> float | None:
        """After to before; None where one of them is nothing or was never reached."""
        a, b = self.before.mid, self.after.mid
        return b / a if 0 < a < float("inf") and b < float("inf") else None


class Comparison(NamedTuple):
    """What can be told of two studies."""

    changes: list[Change]
    settings: dict[str, tuple[Any, Any]]  # that differ: before and after
    alone: tuple[list[str], list[str]]  # groups that only one of them has


def compare(before: Study, after: Study) -> Comparison:
    """Match the groups of two studies and say how each number moved."""
    a, b = ({_key(group): group for group in grouped(study)} for study in (before, after))
    both = [key for key in a if key in b]
    if not both:
        raise ValueError(
            f"{before.folder} and {after.folder} have no run in common: compare needs "
            "the same participation, algorithm, lr and local_steps in both."
        )
    changes = [change for key in both for change in _changes(a[key], b[key])]
    alone = (
        [f"{group.scenario} · {group.label}" for key, group in a.items() if key not in b],
        [f"{group.scenario} · {group.label}" for key, group in b.items() if key not in a],
    )
    return Comparison(changes, _settings(before, after), alone)


def lines(changes: list[Change]) -> list[tuple[str, ...]]:
    """Rows of a table, in the order of HEADERS."""
    rows: list[tuple[str, ...]] = []
    for change in changes:
        what = column(change.what)
        ratio = "–" if change.ratio is None else f"{change.ratio:.3g}"
        word = "same within the spread" if change.word == "same" else change.word
        before, after = _text(what, change.before), _text(what, change.after)
        rows.append(
            (change.participation, change.label, what.title, before, after, ratio, word)
        )  # fmt: skip
    return rows


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """For machines: what was never reached is null."""

    def known(spread: Quartiles) -> dict[str, float | None]:
        return {
            name: value if abs(value) < float("inf") else None
            for name, value in zip(("q1", "median", "q3"), spread, strict=True)
        }

    return {
        "changes": [
            change._asdict() | {
                "before": known(change.before), "after": known(change.after),
                "ratio": change.ratio,
            }
            for change in comparison.changes
        ],
        "settings": {key: list(pair) for key, pair in comparison.settings.items()},
        "only_before": comparison.alone[0], "only_after": comparison.alone[1],
    }  # fmt: skip


def _key(group: Group) -> tuple:
    # An error to the optimum and one of the gradient are not the same number.
    return (
        group.scenario, group.algorithm, group.lr, group.local_steps, group.row["measure"]
    )  # fmt: skip


def _changes(before: Group, after: Group) -> Iterator[Change]:
    for what in _compared():
        a, b = before.quartiles(what.name), after.quartiles(what.name)
        if a is not None and b is not None:
            word = _word(what, a, b)
            yield Change(before.scenario, before.algorithm, before.label, what.name, a, b, word)


def _compared() -> Iterator[Column]:
    for each in (*COLUMNS.values(), SECONDS_PER_ROUND):
        if "compare" in each.places:
            yield each
        if each.name == "accuracy":
            yield from map(column, WORST_CLIENT)


def _word(what: Column, a: Quartiles, b: Quartiles) -> str:
    """Say better or worse only where the quartiles do not overlap."""
    if what.name == "error":  # below this, rounding differs and nothing else
        a, b = (Quartiles(*(max(value, EXACT) for value in s)) for s in (a, b))
    slack = 1 + (JITTER if what is SECONDS_PER_ROUND else ROUNDING)
    if b.high * slack < a.low:
        return "worse" if what.rising else "better"
    if b.low > a.high * slack:
        return "better" if what.rising else "worse"
    return "same"


def _text(what: Column, spread: Quartiles) -> str:
    low, mid, high = (what.write(value) for value in spread)
    return mid if low == high else f"{mid} ({low}–{high})"


def _settings(before: Study, after: Study) -> dict[str, tuple[Any, Any]]:
    a, b = (dict(settings(study.manifest["study"])) for study in (before, after))
    names = [name for name in {**a, **b} if name not in ("name", "seed")]
    return {n: (a.get(n), b.get(n)) for n in names if a.get(n) != b.get(n)}

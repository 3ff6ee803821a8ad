"""The table of a study: a row for every group of runs."""

from collections.abc import Iterable
from typing import NamedTuple

from focusfl.studies.report.groups import Group
from focusfl.studies.report.names import label
from focusfl.studies.report.numbers import NUMBERS, Spread, is_of_clients, number
from focusfl.studies.results import Run

SETTINGS = ("lr", "local_steps")  # told where they vary
FEWER = 2.5  # times the bytes of a push, in which some algorithms have two vectors


class Column(NamedTuple):
    """A column: words, or one of NUMBERS over seeds."""

    name: str  # for machines
    title: str  # for people
    cells: list[str] | list[Spread | None]

    @property
    def numeric(self) -> bool:
        return self.name in NUMBERS or is_of_clients(self.name)

    def text(self, cell: str | Spread | None) -> str:
        """A cell, to be read: of several seeds the median."""
        if isinstance(cell, str):
            return label(cell) if self.name == "algorithm" else cell
        return "–" if cell is None else number(self.name).text(cell.mid)


def columns(groups: list[Group], constant: bool = False) -> list[Column]:
    """Everything about the groups that is known of one of them.

    With `constant`, also settings that are the same in all of them.
    """
    found = [
        Column("participation", "participation", [one.scenario for one in groups]),
        Column("algorithm", "algorithm", [one.algorithm for one in groups]),
        Column("verdict", "verdict", [one.verdict() for one in groups]),
        Column("reason", "why", [one.reason() for one in groups]),
    ]
    for name in _names(groups):
        cells = [one.spread(name) for one in groups]
        known = {cell for cell in cells if cell is not None}
        if len(known) > (name in SETTINGS and not constant):
            title = groups[0].row["measure"] if name == "error" else number(name).title
            found.append(Column(name, title, cells))
    return found


def _names(groups: list[Group]) -> list[str]:
    """NUMBERS, and after the accuracy those of clients' own."""
    runs = [run for one in groups for run in one.runs]
    own = filter(is_of_clients, dict.fromkeys(n for run in runs for n in run.metrics))
    names, place = list(NUMBERS), list(NUMBERS).index("accuracy") + 1
    if not unlike(runs):  # then they say what vectors do
        names.remove("bytes_to_target")
    return [*names[:place], *own, *names[place:]]


def unlike(runs: Iterable[Run]) -> bool:
    """Whether a push takes far more bytes in some runs than in others: compressors."""
    ends = [
        run.row["local_steps"] * run.curves["bytes_up"][-1] / done
        for run in runs
        if "bytes_up" in run.curves and (done := run.curves["gradients"][-1])
    ]
    return bool(ends and max(ends) > FEWER * min(ends))

"""The columns of every table about runs: what each holds, its title and how it is written.

Terminal, page, CSV and LaTeX, `compare`, and figures against the step size all take their
columns from COLUMNS. To add a column, add a line there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.core.metrics import in_words, rises
from focusfl.studies.report.names import label
from focusfl.studies.store import LOSS, Run
from focusfl.studies.summary import TARGET

if TYPE_CHECKING:
    from focusfl.studies.report.groups import Group

HUGE = 1e300  # stands for infinity where numbers are interpolated
UNLIKE_PUSHES = 2.5  # times the bytes of a push, in which some algorithms have two vectors

Place = Literal["terminal", "paper", "compare", "steps", "best"]


class Quartiles(NamedTuple):
    """Quartiles over seeds; infinite for what was never reached."""

    low: float
    mid: float
    high: float


Cell = str | Quartiles | None  # None: no run of the group knows it


def quartiles(values: Float[np.ndarray, "runs *rounds"]) -> np.ndarray:  # noqa: F821
    """Give quartiles over runs; infinity takes part."""
    bounded = np.clip(values, -HUGE, HUGE)  # infinity times 0 is not a number
    result = np.quantile(bounded, (0.25, 0.5, 0.75), axis=0)
    result[result > HUGE / 1e9] = np.inf
    result[result < -HUGE / 1e9] = -np.inf
    return result


def sci(value: float, digits: int = 1) -> str:
    """Write a number as in 1.4e-15."""
    return _bare_exponent(f"{value:.{digits}e}")


def short(value: float) -> str:
    """Write a number in three digits, as in 0.0002 or 1e9."""
    return _bare_exponent(f"{value:.3g}")


def _bare_exponent(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else text


@dataclass(frozen=True)
class Column:
    """One column of tables about groups of runs: text, or a number over seeds.

    A number is infinite where a run never reached it, and NaN where it is not known.
    """

    name: str  # in files, and for --columns
    title: str  # for people
    text_of: Callable[["Group"], str] | None = None  # of a group of runs
    number_of: Callable[[Run], float] | None = None  # of one run
    form: Callable[[float], str] = short  # how a number is written
    places: tuple[Place, ...] = ()  # where it stands, beside the page and CSV files
    rising: bool = False  # more is better
    never: str = "never"  # the word for infinity
    setting: bool = False  # chosen, not measured: shown only where it varies

    @property
    def numeric(self) -> bool:
        return self.number_of is not None

    def cell(self, group: "Group") -> Cell:
        """Give what stands in the row of a group."""
        return self.text_of(group) if self.text_of else group.quartiles(self.name)

    def write(self, value: float) -> str:
        """Write a number, to be read."""
        if np.isnan(value):
            return "–"
        return self.form(value) if np.isfinite(value) else self.never

    def text(self, cell: Cell) -> str:
        """Write a cell, to be read: of several seeds the median."""
        if isinstance(cell, str):
            return label(cell) if self.name == "algorithm" else cell
        return "–" if cell is None else self.write(cell.mid)


def _error(run: Run) -> float:
    return np.inf if run.row["diverged_at"] is not None else run.row["error"]


def _last(curve: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        return float(run.curves[curve][-1]) if curve in run.curves else np.nan

    return number


def _at_target(axis: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        at = run.row["rounds_to_target"]
        if axis not in run.curves:
            return np.nan
        if at is None:  # of a loss there is no target
            return np.nan if run.row["measure"] == LOSS else np.inf
        return float(np.interp(at, run.curves["round"], run.curves[axis]))

    return number


def _in_row(name: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        value = run.row.get(name)
        return np.nan if value is None else float(value)

    return number


def _seconds_per_round(run: Run) -> float:
    rounds = run.curves["round"][-1]
    return float(run.curves["seconds"][-1] / rounds) if rounds else np.nan


GOAL = sci(TARGET, 0)
_COUNT = "{:,.0f}".format
_SHARE = "{:.4f}".format
_TO_TARGET: tuple[Place, ...] = ("paper", "compare", "best")

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("participation", "participation", lambda group: group.scenario,
               places=("terminal", "paper")),
        Column("algorithm", "algorithm", lambda group: group.algorithm,
               places=("terminal", "paper")),
        Column("verdict", "verdict", lambda group: group.verdict(),
               places=("terminal", "paper")),
        Column("reason", "why", lambda group: group.reason()),
        Column("lr", "lr", number_of=_in_row("lr"), setting=True,
               places=("terminal", "paper")),
        Column("local_steps", "local steps", number_of=_in_row("local_steps"), form=_COUNT,
               setting=True, places=("terminal", "paper")),
        # Its title is what the error is relative to, which runs say.
        Column("error", "error", number_of=_error, form=sci, never="∞",
               places=("terminal", "paper", "compare", "steps", "best")),
        Column("accuracy", "accuracy", number_of=_last("accuracy"), form=_SHARE, rising=True,
               places=("terminal", "paper", "compare", "steps", "best")),
        Column("rounds_to_target", f"rounds to {GOAL}", number_of=_at_target("round"),
               form=_COUNT, places=("terminal", "steps", *_TO_TARGET)),
        Column("vectors_to_target", f"vectors to {GOAL}", number_of=_at_target("vectors_sent"),
               form=_COUNT, places=_TO_TARGET),
        Column("bytes_to_target", f"bytes up to {GOAL}", number_of=_at_target("bytes_up"),
               form=_COUNT, places=("compare", "best")),
        Column("rate", "rate per round", number_of=_in_row("rate"), form=_SHARE),
        Column("seconds", "seconds", number_of=_last("seconds"), places=("best",)),
        Column("grad_norm", "‖∇F(x)‖", number_of=_in_row("grad_norm"), form=sci),
        Column("tracker_norm", "‖y‖/N", number_of=_in_row("tracker_norm"), form=sci),
        Column("tracking_gap", "tracking gap", number_of=_in_row("tracking_gap"), form=sci),
    )
}  # fmt: skip
# Stands in `compare` alone, where rounds may differ.
SECONDS_PER_ROUND = Column(
    "seconds_per_round", "seconds per round", number_of=_seconds_per_round, places=("compare",)
)
WORST_CLIENT = ("accuracy/worst", "loss/worst")  # of the metrics of clients


def column(name: str) -> Column:
    """Give the column of this name: one above, or of a metric that per_client=True adds."""
    if name in COLUMNS:
        return COLUMNS[name]
    if name == SECONDS_PER_ROUND.name:
        return SECONDS_PER_ROUND
    places: tuple[Place, ...] = ("terminal", "paper", "compare", "best")
    return Column(
        name, in_words(name), number_of=_last(name), form=_SHARE if rises(name) else short,
        places=places if name in WORST_CLIENT else ("paper",), rising=rises(name),
    )  # fmt: skip


def is_of_clients(name: str) -> bool:
    """Say whether a metric is one that per_client=True adds."""
    return "/" in name


def columns_of(
    groups: list["Group"], place: Place | None = None, constant: bool = False
) -> list[Column]:
    """Give the columns that something is known for, in the order of a table.

    Args:
        groups: the rows of the table.
        place: only columns that stand there; all if None.
        constant: also settings that are the same in all groups.
    """
    runs = [run for group in groups for run in group.runs]
    of_clients = filter(is_of_clients, dict.fromkeys(name for run in runs for name in run.metrics))
    names = list(COLUMNS)
    after = names.index("accuracy") + 1
    names[after:after] = of_clients
    if not pushes_differ(runs):  # then they say what vectors do
        names.remove("bytes_to_target")
    result = []
    for each in map(column, names):
        cells = {each.cell(group) for group in groups} - {None}
        many = len(cells) > (each.setting and not constant)
        if many and (place is None or place in each.places):
            title = groups[0].row["measure"] if each.name == "error" else each.title
            result.append(replace(each, title=title))
    return result


def pushes_differ(runs: Iterable[Run]) -> bool:
    """Say whether a push takes far more bytes in some runs than in others: compressors."""
    sizes = [
        run.row["local_steps"] * run.curves["bytes_up"][-1] / gradients
        for run in runs
        if "bytes_up" in run.curves and (gradients := run.curves["gradients"][-1])
    ]
    return bool(sizes and max(sizes) > UNLIKE_PUSHES * min(sizes))


def as_table(groups: list["Group"], **which: Any) -> tuple[list[str], list[list[str]]]:
    """Give the titles and the rows of a table, to be read; `which` as in `columns_of`."""
    columns = columns_of(groups, **which)
    rows = [[column.text(column.cell(group)) for column in columns] for group in groups]
    return [column.title for column in columns], rows

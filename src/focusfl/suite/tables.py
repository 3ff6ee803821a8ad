"""Results as tables: for a terminal, a Markdown file and the page alike."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from focusfl.studies.report.columns import short
from focusfl.suite import compare
from focusfl.suite.cells import FLOOR, IMAGES, LAWS, LONGEST, ROUNDS, SPLITS
from focusfl.suite.store import Row

NEVER = "–"


class Table(NamedTuple):
    """A title, what stands above the columns, the rows, and how to read them."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str


def halves(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """What is reported, then what ideas may be tuned on: never as one."""
    split = {half: [row for row in rows if row.split == half] for half in SPLITS[::-1]}
    return {half: cells for half, cells in split.items() if cells}


def tables(rows: Sequence[Row]) -> list[Table]:
    """All tables that there is something for, of one half of the cells."""
    exact = [row for row in rows if row.measure == ROUNDS]
    everything = [
        _headline(exact), _wins(exact), _laws(exact), _costs(exact), _steps(exact),
        _ends(rows, FLOOR, "Floors with noise on the gradients",
              "Relative distance to x* over the last quarter of all rounds"),
        _ends(rows, IMAGES, "Images by mini-batches",
              "Share of test images that are misclassified, over the last five evaluations"),
    ]  # fmt: skip
    return [table for table in everything if table.rows]


def sentence(rows: Sequence[Row]) -> str:
    """What was found, in a line or two; empty where there is nothing to compare."""
    exact = [row for row in rows if row.measure == ROUNDS]
    sentences = []
    for what, unit in (("rounds", "rounds"), ("vectors", "vectors sent")):
        duels = compare.headline(exact, what)
        if not duels or not duels[0].cells:
            continue
        family, *members = duels
        best = min(members, key=lambda member: (member.lost, member.mean))
        lost = f"; {best.lost} not solved" if best.lost else ""
        sentences.append(
            f"The best of the FOCUS family needs {family.mean:.2f} of the {unit} of the best "
            f"baseline in the same cell (geometric mean of {family.cells} cells; fewer in "
            f"{family.better}; worst {family.worst:.2f} in {family.where}); {best.who} "
            f"alone needs {best.mean:.2f} (worst {best.worst:.2f} in {best.where}{lost})."
        )
    return " ".join(sentences)


def every_cell(rows: Sequence[Row]) -> Table:
    """What was measured of everybody in every cell."""
    table, names = compare.costs(rows), compare.entrants_of(rows)
    lines = [
        (cell, *(_value(costs.get(name, np.nan)) for name in names))
        for cell, costs in table.items()
    ]
    note = (
        "Rounds to the target, error under noise, or share of images misclassified, at the "
        "best step. ∞: the target was not reached."
    )
    return Table("Every cell", ("cell", *names), lines, note)


def _value(value: float) -> str:
    return f"{value:,.0f}" if 1 <= value < np.inf else _end(value)


def _headline(rows: Sequence[Row]) -> Table:
    duels = zip(compare.headline(rows), compare.headline(rows, "vectors"), strict=True)
    lines = [
        (duel.who, _times(duel.mean), f"{duel.better} of {duel.cells}",
         _times(duel.worst), duel.where or NEVER, str(duel.lost), str(duel.alone),
         _times(sent.mean), _times(sent.worst), sent.where or NEVER)
        for duel, sent in duels
    ]  # fmt: skip
    heads = (
        "method", "share of rounds", "fewer in", "worst share", "in cell",
        "cells only baselines solve", "cells only it solves", "share of vectors",
        "worst share", "in cell",
    )  # fmt: skip
    note = (
        "Rounds and vectors as a share of those of the best baseline in the same cell: "
        "geometric means over the cells that both solve. Below 1, the method is better."
    )
    return Table("The FOCUS family against the best baseline", heads, lines, note)


def _wins(rows: Sequence[Row]) -> Table:
    errors: dict[str, list[float]] = {}
    for row in rows:
        if not np.isfinite(row.value) and np.isfinite(row.error):
            errors.setdefault(row.entrant, []).append(row.error)
    lines = [
        (each.entrant, str(each.wins), str(each.within), str(each.cells), str(each.missed),
         _end(compare.geometric(errors.get(each.entrant, []))),
         _times(each.mean), _times(each.worst), each.where)
        for each in compare.standings(compare.costs(rows))
    ]  # fmt: skip
    heads = (
        "method", "wins", "within 2×", "cells", "not solved", "error there",
        "mean of best", "worst of best", "worst cell",
    )  # fmt: skip
    note = (
        "Rounds divided by those of the best method in the same cell. The mean is "
        "geometric, over the cells that the method solves; a tie counts as a win of "
        "both. The error is the geometric mean of the errors at the best step in the "
        "cells that are not solved."
    )
    return Table("Wins and worst cells", heads, lines, note)


def _laws(rows: Sequence[Row]) -> Table:
    means = compare.by_law(rows)
    laws = list(dict.fromkeys(law for law in (*LAWS, *means) if law in means))
    lines = [
        (name, *(_rounds(means[law].get(name)) for law in laws))
        for name in compare.entrants_of(rows)
    ]
    note = (
        "Geometric means over problems. A run that does not reach the target counts with "
        "4,096 rounds, the limit; ≥ marks such means, with the number of such cells."
    )
    return Table("Rounds by participation", ("method", *laws), lines, note)


def _rounds(mean_and_missed: tuple[float, int] | None) -> str:
    if mean_and_missed is None:
        return NEVER
    mean, missed = mean_and_missed
    if round(mean) == LONGEST:
        return "never"
    return f"≥ {mean:,.0f} ({missed})" if missed else f"{mean:,.0f}"


def _costs(rows: Sequence[Row]) -> Table:
    heads = ("rounds", "vectors", "bytes", "gradients", "seconds")
    means = [
        {each.entrant: each.mean for each in compare.standings(compare.costs(rows, what))}
        for what in heads
    ]
    lines = [
        (name, *(_times(column.get(name, np.nan)) for column in means))
        for name in compare.entrants_of(rows)
    ]
    note = (
        "Cost of a method divided by that of the best method in the same cell: geometric "
        "mean over the cells that the method solves. Vectors have the size of the model; "
        "bytes count whole messages; seconds are those of the simulator, where runs "
        "share a core."
    )
    return Table("Cost of reaching the target", ("method", *heads), lines, note)


def _steps(rows: Sequence[Row]) -> Table:
    near, lines = compare.sensitivity(rows), []
    for name in compare.entrants_of(rows):
        cells = [row for row in rows if row.entrant == name]
        steps = [row.step for row in cells if np.isfinite(row.value)]
        lines.append(
            (name, f"{near[name]:.1f}" if name in near else NEVER,
             f"{short(min(steps))} to {short(max(steps))}" if steps else NEVER,
             str(sum(row.edge for row in cells)), f"{sum(row.runs for row in cells):,}")
        )  # fmt: skip
    heads = ("method", "steps within 2×", "best steps · L", "ended at an edge", "runs")
    note = (
        "Number of steps of the grid, √2 apart, at which a method needs at most twice the "
        "rounds of its best step: a larger number means less tuning. Runs are those of "
        "the whole search."
    )
    return Table("Sensitivity to the step", heads, lines, note)


def _ends(rows: Sequence[Row], measure: str, title: str, what: str) -> Table:
    cells = [row for row in rows if row.measure == measure]
    table = compare.costs(cells)
    lines = [
        (name, *(_end(costs.get(name, np.nan)) for costs in table.values()))
        for name in compare.entrants_of(cells)
    ]
    return Table(title, ("method", *table), lines, f"{what}, at the best step. ∞: diverged.")


def _end(value: float) -> str:
    if np.isnan(value):
        return NEVER
    return short(float(f"{value:.2g}")) if np.isfinite(value) else "∞"


def _times(value: float) -> str:
    if np.isnan(value):
        return NEVER
    return f"{value:.2f}" if np.isfinite(value) else "∞"

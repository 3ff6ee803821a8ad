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
    found = {half: [r for r in rows if r.split == half] for half in SPLITS[::-1]}
    return {half: own for half, own in found.items() if own}


def tables(rows: Sequence[Row]) -> list[Table]:
    """All tables that there is something for, of one half of the cells."""
    exact = [row for row in rows if row.measure == ROUNDS]
    found = [
        _headline(exact), _wins(exact), _laws(exact), _costs(exact), _steps(exact),
        _ends(rows, FLOOR, "Floors with noise on the gradients",
              "Relative distance to x* over the last quarter of all rounds"),
        _ends(rows, IMAGES, "Images by mini-batches",
              "Share of test images that are misclassified, over the last five evaluations"),
    ]  # fmt: skip
    return [table for table in found if table and table.rows]


def sentence(rows: Sequence[Row]) -> str:
    """What was found, in a line or two; empty where there is nothing to compare."""
    exact = [row for row in rows if row.measure == ROUNDS]
    found = []
    for what, each in (("rounds", "rounds"), ("vectors", "vectors sent")):
        duels = compare.headline(exact, what)
        if not duels or not duels[0].cells:
            continue
        best, *alone = duels
        single = min(alone, key=lambda one: (one.lost, one.mean))
        found.append(
            f"The best of the FOCUS family needs {best.mean:.2f} of the {each} of the best "
            f"baseline in the same cell (geometric mean of {best.cells} cells; fewer in "
            f"{best.better}; worst {best.worst:.2f} in {best.where}); {single.who} "
            f"alone needs {single.mean:.2f} (worst {single.worst:.2f} in {single.where}"
            + (f"; {single.lost} not solved" if single.lost else "")
            + ")."
        )
    return " ".join(found)


def every_cell(rows: Sequence[Row]) -> Table:
    """What was measured of everybody in every cell."""
    table, names = compare.costs(rows), compare.entrants_of(rows)
    lines = [
        (cell, *(_value(own.get(name, np.nan)) for name in names)) for cell, own in table.items()
    ]
    note = (
        "Rounds to the target, error under noise, or share of images misclassified, at the "
        "best step. ∞: the target was not reached."
    )
    return Table("Every cell", ("cell", *names), lines, note)


def _value(value: float) -> str:
    return f"{value:,.0f}" if 1 <= value < np.inf else _end(value)


def _headline(rows: Sequence[Row]) -> Table:
    lines = []
    vectors = {one.who: one for one in compare.headline(rows, "vectors")}
    for one in compare.headline(rows):
        sent = vectors[one.who]
        lines.append(
            (one.who, _times(one.mean), f"{one.better} of {one.cells}",
             _times(one.worst), one.where or NEVER, str(one.lost), str(one.alone),
             _times(sent.mean), _times(sent.worst), sent.where or NEVER)
        )  # fmt: skip
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
    left: dict[str, list[float]] = {}
    for row in rows:
        if not np.isfinite(row.value) and np.isfinite(row.error):
            left.setdefault(row.entrant, []).append(row.error)
    lines = [
        (one.entrant, str(one.wins), str(one.within), str(one.cells), str(one.missed),
         _end(compare.geometric(left.get(one.entrant, []))),
         _times(one.mean), _times(one.worst), one.where)
        for one in compare.standings(compare.costs(rows))
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
    found, names = compare.by_law(rows), compare.entrants_of(rows)
    laws = [law for law in LAWS if law in found]
    laws += [law for law in found if law not in laws]
    lines = [(law, *(_rounds(found[law].get(name)) for name in names)) for law in laws]
    flipped = [(name, *(line[place + 1] for line in lines)) for place, name in enumerate(names)]
    note = (
        "Geometric means over problems. A run that does not reach the target counts with "
        "4,096 rounds, the limit; ≥ marks such means, with the number of such cells."
    )
    return Table("Rounds by participation", ("method", *laws), flipped, note)


def _rounds(found: tuple[float, int] | None) -> str:
    if found is None:
        return NEVER
    mean, missed = found
    if round(mean) == LONGEST:
        return "never"
    return f"≥ {mean:,.0f} ({missed})" if missed else f"{mean:,.0f}"


def _costs(rows: Sequence[Row]) -> Table:
    heads = ("rounds", "vectors", "bytes", "gradients", "seconds")
    lines = []
    found = {what: compare.standings(compare.costs(rows, what)) for what in heads}
    for name in compare.entrants_of(rows):
        own = {
            what: next((one.mean for one in all_ if one.entrant == name), np.nan)
            for what, all_ in found.items()
        }
        lines.append((name, *(_times(own[what]) for what in heads)))
    note = (
        "Cost of a method divided by that of the best method in the same cell: geometric "
        "mean over the cells that the method solves. Vectors have the size of the model; "
        "bytes count whole messages; seconds are those of the simulator, where runs "
        "share a core."
    )
    return Table("Cost of reaching the target", ("method", *heads), lines, note)


def _steps(rows: Sequence[Row]) -> Table:
    near, names = compare.sensitivity(rows), compare.entrants_of(rows)
    lines = []
    for name in names:
        own = [row for row in rows if row.entrant == name]
        steps = [row.step for row in own if np.isfinite(row.value)]
        lines.append(
            (name, f"{near[name]:.1f}" if name in near else NEVER,
             f"{short(min(steps))} to {short(max(steps))}" if steps else NEVER,
             str(sum(row.edge for row in own)), f"{sum(row.runs for row in own):,}")
        )  # fmt: skip
    heads = ("method", "steps within 2×", "best steps · L", "ended at an edge", "runs")
    note = (
        "Number of steps of the grid, √2 apart, at which a method needs at most twice the "
        "rounds of its best step: a larger number means less tuning. Runs are those of "
        "the whole search."
    )
    return Table("Sensitivity to the step", heads, lines, note)


def _ends(rows: Sequence[Row], measure: str, title: str, what: str) -> Table:
    own = [row for row in rows if row.measure == measure]
    table, names = compare.costs(own), compare.entrants_of(own)
    lines = []
    for name in names:
        cells = [own[name] if name in own else np.nan for own in table.values()]
        lines.append((name, *(_end(cell) for cell in cells)))
    return Table(title, ("method", *table), lines, f"{what}, at the best step. ∞: diverged.")


def _end(value: float) -> str:
    if np.isnan(value):
        return NEVER
    return short(float(f"{value:.2g}")) if np.isfinite(value) else "∞"


def _times(value: float) -> str:
    if np.isnan(value):
        return NEVER
    return f"{value:.2f}" if np.isfinite(value) else "∞"

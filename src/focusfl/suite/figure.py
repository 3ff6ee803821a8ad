"""Performance profiles, drawn: how often a method is within so much of the best."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from focusfl.studies.report.figure import blank
from focusfl.studies.report.names import COLOURS, STYLES
from focusfl.suite import compare
from focusfl.suite.store import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 8.0  # times the best, at the right end


def profiles(rows: Sequence[Row], what: Sequence[str]) -> "Figure":
    """Draw Dolan–Moré profiles, a panel for each cost; ours thick, others thin. Who
    solves nothing is left out."""
    names = compare.entrants_of(rows)
    some = compare.entrants_of(row for row in rows if np.isfinite(row.value))
    ours = {row.entrant for row in rows if row.ours}
    factors = np.geomspace(1, WIDEST, 200)
    figure = blank(figsize=(1.6 + 4.1 * len(what), 4.4), layout="constrained")
    panels = figure.subplots(1, len(what), sharey=True, squeeze=False)[0]
    for panel, cost in zip(panels, what, strict=True):
        table = compare.complete(compare.costs(rows, cost), names)
        for place, name in enumerate(some):
            panel.step(
                factors, compare.profile(table, name, factors.tolist()), where="post",
                label=name, color=COLOURS[place % len(COLOURS)],
                linestyle=STYLES[place // len(COLOURS) % len(STYLES)],
                linewidth=2.4 if name in ours else 1.2,
            )  # fmt: skip
        panel.set_xscale("log", base=2)
        panel.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        panel.set(xlim=(1, WIDEST), ylim=(0, 1.01), xlabel=f"times the fewest {cost}")
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of cells")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside right center", frameon=False, fontsize="small")
    return figure

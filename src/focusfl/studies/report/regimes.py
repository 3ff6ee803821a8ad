"""Theorem 1 in its three regimes, drawn: what FOCUS did, and what was predicted."""

from typing import TYPE_CHECKING

from focusfl.studies.regimes import Panel
from focusfl.studies.report.figure import blank
from focusfl.studies.report.names import colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = {  # what was measured has FOCUS's colour, all else is grey
    "measured": "-",
    "measured fast": (0, (5, 1)),
    "predicted": "--",
    "printed": "-.",
    "bound": ":",
}
GREY = "0.45"


def regimes_figure(found: list[Panel]) -> "Figure":
    """Draw one panel per regime."""
    figure = blank(figsize=(13.5, 4.2), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(found)), found, strict=True):
        for line in panel.lines:
            ours = line.kind in ("measured", "measured fast")
            axes.plot(
                line.x, line.y, linestyle=STYLES[line.kind], label=line.label,
                color=colour("focus") if ours else GREY,
            )  # fmt: skip
        axes.set(yscale="log", xscale=panel.xscale, xlabel="rounds", ylim=panel.ylim)
        axes.set_ylabel(panel.ylabel)
        axes.set_title(panel.title, fontsize=11)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8.5)
    return figure

"""Convergence curves, one panel per participation model."""

import io
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from focusfl.experiment.study import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; FOCUS comes first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
FLOOR = 1e-17


def convergence(cells: list[Cell], title: str = "") -> "Figure":
    """Draw relative error against rounds."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(
            "figures need matplotlib; install it with: pip install 'focusfl[plots]'"
        ) from None

    scenes = list(dict.fromkeys(cell.participation for cell in cells))
    names = list(dict.fromkeys(cell.algorithm for cell in cells))
    look = {
        name: {"color": colour, "linestyle": style}
        for name, colour, style in zip(
            names, cycle(COLOURS), cycle(STYLES), strict=False
        )
    }
    figure = Figure(figsize=(0.8 + 3.1 * len(scenes), 3.4), layout="constrained")
    panels = figure.subplots(1, len(scenes), sharey=True, squeeze=False)[0]
    for panel, scene in zip(panels, scenes, strict=True):
        for cell in (c for c in cells if c.participation == scene):
            distance = cell.result.metrics["distance"]
            panel.plot(
                np.arange(len(distance)),
                np.maximum(distance, FLOOR),
                label=cell.algorithm,
                linewidth=1.6,
                **look[cell.algorithm],
            )
            if cell.result.diverged_at is not None:
                panel.plot(
                    len(distance) - 1,
                    distance[-1],
                    "x",
                    color=look[cell.algorithm]["color"],
                )
        panel.set_yscale("log")
        panel.set_title(scene, fontsize=11)
        panel.set_xlabel("rounds")
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(r"relative error  $\|x-x^\star\|\,/\,\|x^\star\|$")
    panels[0].legend(frameon=False)
    if title:
        figure.suptitle(title, fontsize=12)
    return figure


def render(figure: "Figure", kind: str) -> bytes:
    """Turn a figure into the bytes of a PNG or SVG."""
    out = io.BytesIO()
    # No date and fixed ids: the same results give the same file.
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "focusfl", "svg.fonttype": "none"}):
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(out, format=kind, dpi=160, metadata=metadata)
    return out.getvalue()

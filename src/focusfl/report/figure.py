"""Convergence curves, one panel per participation model."""

import io
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.experiment.study import Cell
from focusfl.experiment.summary import errors
from focusfl.extras import missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; FOCUS comes first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", (0, (5, 2)), (0, (3, 1, 1, 1)))  # a second and third turn of colours
PUBLISHED = "_as_published"
FLOOR, CEILING = 1e-17, 1e4
LABELS = {
    "relative error": r"relative error  $\|x-x^\star\|\,/\,\|x^\star\|$",
    "relative gradient": r"gradient  $\|\nabla F(x)\|\,/\,\|\nabla F(x_0)\|$",
}


def blank(**options: Any) -> "Figure":
    """An empty figure; where matplotlib is missing, one clear line."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(missing("figures need", "matplotlib", "plots")) from None
    return Figure(**options)


def convergence(cells: list[Cell], axes: tuple[str, ...] = ("rounds",)) -> "Figure":
    """Draw relative error against rounds, or vectors sent; one row for each axis.

    Algorithms as published are dotted, in the colour of the algorithm itself.
    """
    scenes = list(dict.fromkeys(cell.participation for cell in cells))
    names = list(dict.fromkeys(cell.algorithm for cell in cells))
    look = looks(names)
    crowd = len(names) > 4
    figure = blank(
        figsize=(0.8 + 3.1 * len(scenes) + 1.9 * crowd, 0.4 + 3 * len(axes)),
        layout="constrained",
    )
    grid = figure.subplots(len(axes), len(scenes), sharey=True, squeeze=False)
    for row, axis in zip(grid, axes, strict=True):
        for panel, scene in zip(row, scenes, strict=True):
            for cell in (c for c in cells if c.participation == scene):
                _curve(panel, cell, axis, look[cell.algorithm])
            panel.set_yscale("log")
            panel.set_xlabel(axis)
            panel.grid(alpha=0.25, linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(LABELS[errors(cells[0].result)[0]])
    for panel, scene in zip(grid[0], scenes, strict=True):
        panel.set_title(scene, fontsize=11)
    if crowd:
        handles = {line.get_label(): line for p in grid[0] for line in p.get_lines()}
        shown = [handles[name] for name in names]
        figure.legend(shown, names, loc="outside right center", frameon=False)
    else:
        grid[0][0].legend(frameon=False)
    return figure


def looks(names: list[str]) -> dict[str, dict[str, Any]]:
    """Choose colour and line of every algorithm."""
    bases = list(dict.fromkeys(name.removesuffix(PUBLISHED) for name in names))
    styles = (style for style in STYLES for _ in COLOURS)
    own = dict(zip(bases, zip(cycle(COLOURS), styles, strict=False), strict=False))
    return {
        name: {
            "color": own[name.removesuffix(PUBLISHED)][0],
            "linestyle": ":" if name.endswith(PUBLISHED) else own[name][1],
            "linewidth": 2.0 if name == names[0] else 1.4,
        }
        for name in names
    }


def _curve(panel, cell: Cell, axis: str, look: dict[str, Any]) -> None:
    metrics = cell.result.metrics
    distance = np.clip(errors(cell.result)[1], FLOOR, CEILING)
    place = np.arange(len(distance))
    if axis == "vectors sent":
        place = np.cumsum(metrics["down"] + metrics["up"])
    panel.plot(place, distance, label=cell.algorithm, **look)
    if cell.result.diverged_at is not None:
        panel.plot(place[-1], distance[-1], "x", color=look["color"], label="_")


def render(figure: "Figure", kind: str) -> bytes:
    """Turn a figure into the bytes of a PNG, SVG or PDF."""
    from matplotlib import rc_context

    out = io.BytesIO()
    # No date and fixed ids: the same results give the same file. Text stays text, and
    # a PDF holds its letters as TrueType, which journals ask for.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context(
        {"svg.hashsalt": "focusfl", "svg.fonttype": "none", "pdf.fonttype": 42}
    ):
        figure.savefig(out, format=kind, dpi=160, metadata=dates.get(kind, {}))
    return out.getvalue()

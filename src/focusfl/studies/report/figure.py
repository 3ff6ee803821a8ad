"""Convergence curves, one panel per participation model; figures as files."""

import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.core.extras import missing
from focusfl.core.files import write
from focusfl.studies.report.names import label, looks
from focusfl.studies.results import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOOR, CEILING = 1e-17, 1e4
LABELS = {
    "relative error": "‖x − x*‖ / ‖x*‖",
    "relative gradient": "‖∇F(x)‖ / ‖∇F(x₀)‖",
    "loss": "loss",
}


class NoMatplotlib(ValueError):
    """Nothing can be drawn here; everything else can be shown."""


def blank(**options: Any) -> "Figure":
    """An empty figure; where matplotlib is missing, one clear line."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        words = missing("figures need", "matplotlib", "plots")
        raise NoMatplotlib(words) from None
    return Figure(**options)


def convergence(runs: list[Run], axes: tuple[str, ...] = ("rounds",)) -> "Figure":
    """Draw relative error against rounds, or vectors sent; one row for each axis.

    Algorithms as published are dotted, in the colour of the algorithm itself.
    """
    scenarios = list(dict.fromkeys(run.row["participation"] for run in runs))
    names = list(dict.fromkeys(run.row["algorithm"] for run in runs))
    look = looks(names)
    crowd = len(names) > 4
    figure = blank(
        figsize=(0.8 + 3.1 * len(scenarios) + 1.9 * crowd, 0.4 + 3 * len(axes)),
        layout="constrained",
    )
    grid = figure.subplots(len(axes), len(scenarios), sharey=True, squeeze=False)
    for row, axis in zip(grid, axes, strict=True):
        for panel, scenario in zip(row, scenarios, strict=True):
            for run in runs:
                if run.row["participation"] == scenario:
                    _curve(panel, run, axis, look[run.row["algorithm"]])
            panel.set_yscale("log")
            panel.set_xlabel(axis)
            panel.grid(alpha=0.25, linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(LABELS[runs[0].row["measure"]])
    for panel, scenario in zip(grid[0], scenarios, strict=True):
        panel.set_title(scenario, fontsize=11)
    if crowd:
        handles = {line.get_label(): line for p in grid[0] for line in p.get_lines()}
        shown = [label(name) for name in names]
        lines = [handles[name] for name in shown]
        figure.legend(lines, shown, loc="outside right center", frameon=False)
    else:
        grid[0][0].legend(frameon=False)
    return figure


def _curve(panel, run: Run, axis: str, look: dict[str, Any]) -> None:
    place = run.curves["vectors_sent" if axis == "vectors sent" else "round"]
    distance = np.clip(run.errors, FLOOR, CEILING)
    panel.plot(place, distance, label=label(run.row["algorithm"]), **look)
    if run.row["diverged_at"] is not None:
        panel.plot(place[-1], distance[-1], "x", color=look["color"], label="_")


def render(figure: "Figure", kind: str) -> bytes:
    """Turn a figure into the bytes of a PNG, SVG or PDF."""
    from matplotlib import rc_context

    out = io.BytesIO()
    # No date and fixed ids: the same results give the same file. Text stays text, and
    # a PDF holds its letters as TrueType, which journals ask for.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "focusfl", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(out, format=kind, dpi=160, metadata=dates.get(kind, {}))
    return out.getvalue()


def saved(folder: Path, figures: Mapping[str, Callable[[], "Figure"]]) -> list[Path]:
    """Draw figures into a folder, by name; without matplotlib, say so and draw none."""
    try:
        drawn = {name: render(draw(), "png") for name, draw in figures.items()}
    except NoMatplotlib as error:
        print(f"no {' and no '.join(figures)}.png: {error}", file=sys.stderr)
        return []
    return [write(folder / f"{name}.png", picture) for name, picture in drawn.items()]

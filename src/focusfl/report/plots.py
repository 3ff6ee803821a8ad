"""Publication figures: quartiles over seeds, a panel per scene."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.experiment.results import Results
from focusfl.report import bands
from focusfl.report.bands import Band
from focusfl.report.figure import CEILING, blank
from focusfl.report.groups import Group, by_scene, group_looks, grouped, study_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("pdf", "svg", "png")
AXES = {label.replace(" ", "-"): axis for axis, label in bands.AXIS_LABELS.items()}
WIDTH = 6.75  # inches: the text of a page in two columns
ACROSS = 4  # panels in a row, at most
TEXT = 8  # points

Curves = list[tuple[Group, Band]]


def plot(
    studies: list[Results],
    x: str = "rounds",
    y: str | None = None,
    *,
    relative: bool = False,
    theory: bool = False,
    reference: float | None = None,
    scenes: list[str] | None = None,
    algorithms: list[str] | None = None,
    width: float = WIDTH,
) -> "Figure":
    """Draw a metric, the first there is, against one of AXES."""
    if x not in AXES:
        raise ValueError(f"--x must be one of {', '.join(AXES)}; got {x!r}.")
    if not 1 <= width <= 50:
        raise ValueError(f"--width is in inches, from 1 to 50; got {width}.")
    chosen = _chosen(studies, scenes, algorithms)
    groups = [one for _, own in chosen for one in own]
    metrics = bands.metrics_of(run for one in groups for run in one.runs)
    metric = metrics[0] if y is None else y.replace("-", "_")
    if metric not in metrics:
        raise ValueError(f"--y must be one of {', '.join(metrics)}; got {y!r}.")
    panels = [(title, _curves(own, metric, AXES[x], relative)) for title, own in chosen]
    shown = [band for _, curves in panels for _, band in curves]
    lowest = min(float(band.low.min()) for band in shown)
    looks = group_looks(groups)
    figure, grid = _sheet(len(panels), list(looks), width)
    for panel, (title, curves) in zip(grid, panels, strict=True):
        _draw(panel, curves, AXES[x], looks)
        if theory and metric == "distance" and not relative:
            _theory(panel, curves, AXES[x], looks, lowest)
        if reference is not None:
            panel.axhline(reference, color="0.4", linewidth=0.8, zorder=1)
        panel.set_title(title, fontsize=TEXT + 1)
        panel.set_xlabel(x.replace("-", " "), fontsize=TEXT)
    _heights(grid[0], shown, metric, relative)
    words = bands.relative_label(metric) if relative else bands.label(metric)
    figure.supylabel(textwrap.fill(words, 24), fontsize=TEXT)
    lines = {line.get_label(): line for panel in grid for line in panel.get_lines()}
    labels = [label for label in looks if label in lines]
    figure.legend(
        [lines[label] for label in labels], labels, loc="outside lower center",
        ncols=-(-len(labels) // _rows(labels, width)), frameon=False, fontsize=TEXT,
    )  # fmt: skip
    return figure


def _chosen(
    studies: list[Results], scenes: list[str] | None, algorithms: list[str] | None
) -> list[tuple[str, list[Group]]]:
    """The title and the groups of every panel."""
    found = [grouped(study) for study in studies]
    groups = [one for own in found for one in own]
    for flag, wanted, known in [
        ("--scenes", scenes, {one.scene for one in groups}),
        ("--algorithms", algorithms, {one.algorithm for one in groups}),
    ]:
        for name in wanted or ():
            if name not in known:
                raise ValueError(
                    f"{flag} must be among {', '.join(sorted(known))}; got {name!r}."
                )
    panels = []
    for name, own in zip(study_names(studies), found, strict=True):
        kept = [
            one
            for one in own
            if (not scenes or one.scene in scenes)
            and (not algorithms or one.algorithm in algorithms)
        ]
        lead = f"{name}: " if len(studies) > 1 else ""
        panels += [(lead + scene, some) for scene, some in by_scene(kept).items()]
    if not panels:
        raise ValueError("nothing is left to draw: no scene has these algorithms.")
    return panels


def _curves(groups: list[Group], metric: str, axis: str, relative: bool) -> Curves:
    known = [(one, bands.band(one.runs, metric)) for one in groups]
    curves = [(one, band) for one, band in known if band is not None]
    if not relative or not curves:
        return curves
    against = bands.relative([band for _, band in curves], metric, axis)
    return [(one, band) for (one, _), band in zip(curves, against, strict=True)]


def _rows(labels: list[str], width: float) -> int:
    """The lines that a legend takes."""
    longest = 0.6 + 0.065 * max(map(len, labels))  # inches
    return -(-len(labels) // max(1, int(width / longest)))


def _sheet(panels: int, labels: list[str], width: float) -> "tuple[Figure, list[Axes]]":
    """An empty figure with so many panels, as high as they and the legend need."""
    across = min(panels, ACROSS, max(1, round(width / 1.6)))
    down = -(-panels // across)
    height = down * max(1.7, min(0.8 * width / across, 3.2))
    size = (width, height + 0.2 * _rows(labels, width))
    figure = blank(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, sharey=True, squeeze=False).ravel().tolist()
    for panel in grid[panels:]:
        panel.remove()
    for panel in grid[:panels]:
        panel.tick_params(labelsize=TEXT - 1)
        panel.grid(alpha=0.25, linewidth=0.5)
        panel.spines[["top", "right"]].set_visible(False)
        panel.locator_params(axis="x", nbins=4)
    return figure, grid[:panels]


def _draw(
    panel: "Axes", curves: Curves, axis: str, looks: dict[str, dict[str, Any]]
) -> None:
    for index, (one, band) in enumerate(curves):
        look, x = dict(looks[one.label]), band.axes[axis]
        look["linewidth"] *= 0.7  # thinner than on a screen
        every = max(1, len(x) // 5)
        panel.plot(
            x, band.mid, label=one.label, **look, markersize=3, markeredgewidth=0.8,
            markerfacecolor="white", markevery=(index * every // 7, every),
            zorder=10 - index / 100,
        )  # fmt: skip
        top = np.where(np.isfinite(band.high), band.high, np.abs(band.mid) * CEILING)
        panel.fill_between(x, band.low, top, color=look["color"], alpha=0.2, lw=0)
        if one.diverged:
            panel.plot(x[-1], band.mid[-1], "x", color=look["color"], label="_")


def _theory(
    panel: "Axes",
    curves: Curves,
    axis: str,
    looks: dict[str, dict[str, Any]],
    lowest: float,
) -> None:
    """The predicted rate, dashed; where it settles, dotted; its noise floor."""
    for one, band in curves:
        look = {"color": looks[one.label]["color"], "linewidth": 0.9, "label": "_"}
        told = one.row.get("theory") or {}
        if told.get("rate"):
            line = band.mid[0] * told["rate"] ** band.axes["round"]
            kept = line >= max(lowest, bands.SMALLEST)
            panel.plot(band.axes[axis][kept], line[kept], linestyle="--", **look)
        for name, style in (("bias", ":"), ("floor", "-.")):
            if told.get(name):
                panel.axhline(told[name], linestyle=style, **look)


def _heights(panel: "Axes", shown: list[Band], metric: str, relative: bool) -> None:
    """Logarithms where there are any; what has blown up is cut off."""
    if metric == bands.RISING or any(band.mid.min() < 0 for band in shown):
        return
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    if not relative:
        high = min(high, CEILING * max(float(band.mid[0]) for band in shown))
    panel.set_ylim(max(low, bands.SMALLEST), high)

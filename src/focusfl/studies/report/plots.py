"""Publication figures: quartiles over seeds, a panel per scenario."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from focusfl.core.metrics import rises
from focusfl.studies.report import bands
from focusfl.studies.report.bands import Band
from focusfl.studies.report.columns import COLUMNS
from focusfl.studies.report.figure import CEILING, blank
from focusfl.studies.report.groups import (
    Group,
    bests,
    by_scenario,
    by_step,
    group_looks,
    grouped,
    study_names,
)
from focusfl.studies.store import Study, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("pdf", "svg", "png")
AXES = {label.replace(" ", "-"): axis for axis, label in bands.AXIS_LABELS.items()}
STEPS = "step-size"  # an axis of another kind: a point for every run of a grid
STEP_HEIGHTS = [name for name, column in COLUMNS.items() if "steps" in column.places]
WIDTH = 6.75  # inches: the text of a page in two columns
ACROSS = 4  # panels in a row, at most
TEXT = 8  # points

PREDICTED = {  # by theory: what it is called, and its line
    "predicted rate": ("rate", "--"),
    "predicted bias, of the mean iterate": ("bias", ":"),
    "noise floor": ("floor", "-."),
}

Curves = list[tuple[Group, Band]]
Drawn = list[tuple[str, Group, Band]]  # with the name in the legend


class Options(NamedTuple):
    """What is drawn of studies, and how."""

    relative: bool = False  # to the best curve
    theory: bool = False  # what it predicts, beside
    reference: float | None = None  # height of a line
    scenarios: list[str] | None = None  # only these
    algorithms: list[str] | None = None  # only these
    all_steps: bool = False  # of a grid, not the best of each algorithm alone
    width: float = WIDTH  # inches


def plot(
    studies: list[Study],
    x: str = "rounds",
    y: str | None = None,
    **options: Any,
) -> "Figure":
    """Draw a metric, the first there is, against one of AXES, or what runs of a grid
    end with against their STEPS.

    Of a grid of step sizes the best is drawn, unless `all_steps` are asked for.
    `options` are fields of `Options`.
    """
    how = Options(**options)
    relative, all_steps, width = how.relative, how.all_steps, how.width
    if x not in (*AXES, STEPS):
        raise ValueError(f"--x must be one of {', '.join((*AXES, STEPS))}; got {x!r}.")
    if not 1 <= width <= 50:
        raise ValueError(f"--width is in inches, from 1 to 50; got {width}.")
    chosen = _chosen(studies, how.scenarios, how.algorithms)
    if x == STEPS:
        return _against_steps(chosen, y, width)
    if not all_steps:
        chosen = [(title, bests(own)) for title, own in chosen]
    groups = [one for _, own in chosen for one in own]
    metrics = bands.metrics_of(run for one in groups for run in one.runs)
    metric = metrics[0] if y is None else y.replace("-", "_")
    if metric not in metrics:
        raise ValueError(f"--y must be one of {', '.join(metrics)}; got {y!r}.")
    if AXES[x] not in axes_of(run for one in groups for run in one.runs):
        raise ValueError(f"--x {x} is of newer results than these: run the study anew.")
    panels = [(title, _curves(own, metric, AXES[x], relative)) for title, own in chosen]
    shown = [band for _, curves in panels for _, band in curves]
    lowest = min(float(band.low.min()) for band in shown)
    names = {id(one): one.label if all_steps else one.short for one in groups}
    looks = group_looks(groups, short=not all_steps)
    figure, grid = _sheet(len(panels), list(looks), width)
    for panel, (title, curves) in zip(grid, panels, strict=True):
        drawn = [(names[id(one)], one, band) for one, band in curves]
        _draw(panel, drawn, AXES[x], looks)
        if how.theory and metric == "distance" and not relative:
            _theory(panel, drawn, AXES[x], looks, lowest)
        if how.reference is not None:
            panel.axhline(how.reference, color="0.4", linewidth=0.8, zorder=1)
        panel.set_title(title, fontsize=TEXT + 1)
        panel.set_xlabel(x.replace("-", " "), fontsize=TEXT)
    _heights(grid[0], shown, metric, relative)
    words = bands.relative_label(metric) if relative else bands.label(metric)
    figure.supylabel(words, fontsize=TEXT)
    _legend(figure, grid, [*looks, *PREDICTED], width)
    return figure


def _against_steps(chosen: list[tuple[str, list[Group]]], y: str | None, width: float) -> "Figure":
    """What the runs of a grid end with, by step size, on logarithms both ways."""
    panels = [(title, by_step(own)) for title, own in chosen]
    shown = [one for _, grids in panels for own in grids.values() for one in own]
    if not shown:
        raise ValueError(f"--x {STEPS} needs a study with several lr; this has one.")
    what = "error" if y is None else y.replace("-", "_")
    if what not in STEP_HEIGHTS or all(one.quartiles(what) is None for one in shown):
        raise ValueError(f"--y of --x {STEPS} must be error or rounds-to-target, or "
                         f"accuracy where it is known; got {y!r}.")  # fmt: skip
    looks = group_looks(shown, short=True)
    figure, grid = _sheet(len(panels), list(looks), width)
    for panel, (title, grids) in zip(grid, panels, strict=True):
        for short, own in grids.items():
            _grid(panel, own, what, looks[short])
        panel.set_xscale("log")
        panel.set_title(title, fontsize=TEXT + 1)
        panel.set_xlabel("step size lr", fontsize=TEXT)
    if what != "accuracy":
        grid[0].set_yscale("log")
    measure = shown[0].row["measure"]
    words = f"{measure} at the end" if what == "error" else COLUMNS[what].title
    figure.supylabel(words, fontsize=TEXT)
    _legend(figure, grid, list(dict.fromkeys(one.name for one in shown)), width)
    return figure


def _grid(panel: "Axes", own: list[Group], what: str, look: dict[str, Any]) -> None:
    """One line of a step-size figure; a cross on top for what never got anywhere."""
    colour = look["color"]
    points = [(one.row["lr"], one.quartiles(what)) for one in own]
    ends = [(lr, s) for lr, s in points if s and np.isfinite(s.mid)]
    lrs = [lr for lr, _ in ends]
    panel.plot(
        lrs, [s.mid for _, s in ends], label=own[0].name,
        **look | {"linewidth": 1.1}, markersize=4, markerfacecolor="white",
    )  # fmt: skip
    panel.fill_between(
        lrs, [s.low for _, s in ends], [min(s.high, s.mid * CEILING) for _, s in ends],
        color=colour, alpha=0.2, lw=0,
    )  # fmt: skip
    lost = [lr for lr, s in points if s and not np.isfinite(s.mid)]
    panel.plot(
        lost, [0.97] * len(lost), "x", color=colour, label="_",
        transform=panel.get_xaxis_transform(),
    )  # fmt: skip


def _legend(figure: "Figure", grid: "list[Axes]", names: list[str], width: float):
    lines = {line.get_label(): line for panel in grid for line in panel.get_lines()}
    labels = [name for name in names if name in lines]
    figure.legend(
        [lines[label] for label in labels], labels, loc="outside lower center",
        ncols=-(-len(labels) // _rows(labels, width)), frameon=False, fontsize=TEXT,
    )  # fmt: skip


def _chosen(
    studies: list[Study], scenarios: list[str] | None, algorithms: list[str] | None
) -> list[tuple[str, list[Group]]]:
    """The title and the groups of every panel."""
    found = [grouped(study) for study in studies]
    groups = [one for own in found for one in own]
    for flag, wanted, known in [
        ("--scenarios", scenarios, {one.scenario for one in groups}),
        ("--algorithms", algorithms, {one.algorithm for one in groups}),
    ]:
        for name in wanted or ():
            if name not in known:
                raise ValueError(f"{flag} must be among {', '.join(sorted(known))}; got {name!r}.")
    panels = []
    for name, own in zip(study_names(studies), found, strict=True):
        kept = [
            one
            for one in own
            if (not scenarios or one.scenario in scenarios)
            and (not algorithms or one.algorithm in algorithms)
        ]
        lead = f"{name}: " if len(studies) > 1 else ""
        panels += [(lead + scenario, some) for scenario, some in by_scenario(kept).items()]
    if not panels:
        raise ValueError("nothing is left to draw: no scenario has these algorithms.")
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
        panel.xaxis.get_offset_text().set_fontsize(TEXT - 1)
        panel.grid(alpha=0.25, linewidth=0.5)
        panel.spines[["top", "right"]].set_visible(False)
        panel.locator_params(axis="x", nbins=4)
    return figure, grid[:panels]


def _draw(panel: "Axes", curves: Drawn, axis: str, looks: dict[str, dict[str, Any]]) -> None:
    for index, (name, one, band) in enumerate(curves):
        look, x = dict(looks[name]), band.axes[axis]
        look["linewidth"] *= 0.7  # thinner than on a screen
        every = max(1, len(x) // 5)
        panel.plot(
            x, band.mid, label=name, **look, markersize=3, markeredgewidth=0.8,
            markerfacecolor="white", markevery=(index * every // 7, every),
            zorder=10 - index / 100,
        )  # fmt: skip
        top = np.where(np.isfinite(band.high), band.high, np.abs(band.mid) * CEILING)
        panel.fill_between(x, band.low, top, color=look["color"], alpha=0.2, lw=0)
        if one.diverged:
            panel.plot(x[-1], band.mid[-1], "x", color=look["color"], label="_")


def _theory(
    panel: "Axes",
    curves: Drawn,
    axis: str,
    looks: dict[str, dict[str, Any]],
    lowest: float,
) -> None:
    """The predicted rate, dashed; where it settles, dotted; its noise floor."""
    for name, one, band in curves:
        look = {"color": looks[name]["color"], "linewidth": 0.9, "label": "_"}
        told = one.row.get("theory") or {}
        for words, (what, style) in PREDICTED.items():
            if told.get(what):
                panel.plot([], [], linestyle=style, color="0.4", lw=0.9, label=words)
        if told.get("rate"):
            line = band.mid[0] * told["rate"] ** band.axes["round"]
            kept = line >= max(lowest, bands.SMALLEST)
            panel.plot(band.axes[axis][kept], line[kept], linestyle="--", **look)
        for what, style in list(PREDICTED.values())[1:]:
            if told.get(what):
                panel.axhline(told[what], linestyle=style, **look)


def _heights(panel: "Axes", shown: list[Band], metric: str, relative: bool) -> None:
    """Logarithms where there are any; what has blown up is cut off."""
    if rises(metric) or any(band.mid.min() < 0 for band in shown):
        return
    if not any(band.mid.max() > 0 for band in shown):
        return
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    if not relative:
        high = min(high, CEILING * max(float(band.mid[0]) for band in shown))
    panel.set_ylim(max(low, bands.SMALLEST), high)

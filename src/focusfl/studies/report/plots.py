"""Publication figures: quartiles over seeds, a panel per scenario."""

from typing import TYPE_CHECKING, Any

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

Drawn = list[tuple[str, Group, Band]]  # with the name in the legend


def plot(
    studies: list[Study],
    x: str = "rounds",
    y: str | None = None,
    *,
    relative: bool = False,
    theory: bool = False,
    reference: float | None = None,
    scenarios: list[str] | None = None,
    algorithms: list[str] | None = None,
    all_steps: bool = False,
    width: float = WIDTH,
) -> "Figure":
    """Draw quartiles over seeds, a panel for every scenario of every study.

    Args:
        studies: whose runs are drawn.
        x: one of AXES; or STEPS, for what the runs of a grid end with by step size.
        y: the metric; None: the first there is.
        relative: draw it against the best curve.
        theory: add what theory predicts.
        reference: height of a line.
        scenarios: only these; all if None.
        algorithms: only these; all if None.
        all_steps: draw every step size of a grid, not the best of each algorithm alone.
        width: in inches.

    Raises:
        ValueError: If an argument is not one of those there are, or nothing is left to draw.
    """
    if x not in (*AXES, STEPS):
        raise ValueError(f"--x must be one of {', '.join((*AXES, STEPS))}; got {x!r}.")
    if not 1 <= width <= 50:
        raise ValueError(f"--width is in inches, from 1 to 50; got {width}.")
    chosen = _chosen(studies, scenarios, algorithms)
    if x == STEPS:
        return _against_steps(chosen, y, width)
    if not all_steps:
        chosen = [(title, bests(groups)) for title, groups in chosen]
    groups = [group for _, panel_groups in chosen for group in panel_groups]
    runs = [run for group in groups for run in group.runs]
    metrics = bands.metrics_of(runs)
    metric = metrics[0] if y is None else y.replace("-", "_")
    if metric not in metrics:
        raise ValueError(f"--y must be one of {', '.join(metrics)}; got {y!r}.")
    axis = AXES[x]
    if axis not in axes_of(runs):
        raise ValueError(f"--x {x} is of newer results than these: run the study anew.")
    panels = []
    for title, panel_groups in chosen:
        pairs = [(group, bands.band(group.runs, metric)) for group in panel_groups]
        known = [group for group, band in pairs if band is not None]
        drawn = [band for _, band in pairs if band is not None]
        if relative and drawn:
            drawn = bands.relative(drawn, metric, axis)
        names = [group.label if all_steps else group.short for group in known]
        panels.append((title, list(zip(names, known, drawn, strict=True))))
    shown = [band for _, curves in panels for *_, band in curves]
    lowest = min(float(band.low.min()) for band in shown)
    looks = group_looks(groups, short=not all_steps)
    figure, grid = _sheet(len(panels), list(looks), width)
    for panel, (title, curves) in zip(grid, panels, strict=True):
        _draw(panel, curves, axis, looks)
        if theory and metric == "distance" and not relative:
            _theory(panel, curves, axis, looks, lowest)
        if reference is not None:
            panel.axhline(reference, color="0.4", linewidth=0.8, zorder=1)
        panel.set_title(title, fontsize=TEXT + 1)
        panel.set_xlabel(x.replace("-", " "), fontsize=TEXT)
    _heights(grid[0], shown, metric, relative)
    words = bands.relative_label(metric) if relative else bands.label(metric)
    figure.supylabel(words, fontsize=TEXT)
    _legend(figure, grid, [*looks, *PREDICTED], width)
    return figure


def _against_steps(chosen: list[tuple[str, list[Group]]], y: str | None, width: float) -> "Figure":
    """What the runs of a grid end with, by step size, on logarithms both ways."""
    panels = [(title, by_step(groups)) for title, groups in chosen]
    shown = [group for _, grids in panels for groups in grids.values() for group in groups]
    if not shown:
        raise ValueError(f"--x {STEPS} needs a study with several lr; this has one.")
    what = "error" if y is None else y.replace("-", "_")
    if what not in STEP_HEIGHTS or all(group.quartiles(what) is None for group in shown):
        raise ValueError(f"--y of --x {STEPS} must be error or rounds-to-target, or "
                         f"accuracy where it is known; got {y!r}.")  # fmt: skip
    looks = group_looks(shown, short=True)
    figure, grid = _sheet(len(panels), list(looks), width)
    for panel, (title, grids) in zip(grid, panels, strict=True):
        for short, groups in grids.items():
            _grid(panel, groups, what, looks[short])
        panel.set_xscale("log")
        panel.set_title(title, fontsize=TEXT + 1)
        panel.set_xlabel("step size lr", fontsize=TEXT)
    if what != "accuracy":
        grid[0].set_yscale("log")
    measure = shown[0].row["measure"]
    words = f"{measure} at the end" if what == "error" else COLUMNS[what].title
    figure.supylabel(words, fontsize=TEXT)
    _legend(figure, grid, list(dict.fromkeys(group.name for group in shown)), width)
    return figure


def _grid(panel: "Axes", groups: list[Group], what: str, look: dict[str, Any]) -> None:
    """One line of a step-size figure; a cross on top for what never got anywhere."""
    points = [(group.row["lr"], group.quartiles(what)) for group in groups]
    ends = [(lr, s) for lr, s in points if s and np.isfinite(s.mid)]
    lrs = [lr for lr, _ in ends]
    panel.plot(
        lrs, [s.mid for _, s in ends], label=groups[0].name,
        **look | {"linewidth": 1.1}, markersize=4, markerfacecolor="white",
    )  # fmt: skip
    panel.fill_between(
        lrs, [s.low for _, s in ends], [min(s.high, s.mid * CEILING) for _, s in ends],
        color=look["color"], alpha=0.2, lw=0,
    )  # fmt: skip
    lost = [lr for lr, s in points if s and not np.isfinite(s.mid)]
    panel.plot(
        lost, [0.97] * len(lost), "x", color=look["color"], label="_",
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
    by_study = [grouped(study) for study in studies]
    groups = [group for groups in by_study for group in groups]
    for flag, wanted, known in [
        ("--scenarios", scenarios, {group.scenario for group in groups}),
        ("--algorithms", algorithms, {group.algorithm for group in groups}),
    ]:
        for name in wanted or ():
            if name not in known:
                raise ValueError(f"{flag} must be among {', '.join(sorted(known))}; got {name!r}.")
    panels = []
    for name, groups in zip(study_names(studies), by_study, strict=True):
        left = [
            group
            for group in groups
            if (not scenarios or group.scenario in scenarios)
            and (not algorithms or group.algorithm in algorithms)
        ]
        lead = f"{name}: " if len(studies) > 1 else ""
        panels += [(lead + scenario, some) for scenario, some in by_scenario(left).items()]
    if not panels:
        raise ValueError("nothing is left to draw: no scenario has these algorithms.")
    return panels


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
    for index, (name, group, band) in enumerate(curves):
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
        if group.diverged:
            panel.plot(x[-1], band.mid[-1], "x", color=look["color"], label="_")


def _theory(
    panel: "Axes",
    curves: Drawn,
    axis: str,
    looks: dict[str, dict[str, Any]],
    lowest: float,
) -> None:
    """The predicted rate, dashed; where it settles, dotted; its noise floor."""
    for name, group, band in curves:
        look = {"color": looks[name]["color"], "linewidth": 0.9, "label": "_"}
        predicted = group.row.get("theory") or {}
        for words, (what, style) in PREDICTED.items():
            if predicted.get(what):
                panel.plot([], [], linestyle=style, color="0.4", lw=0.9, label=words)
        if predicted.get("rate"):
            line = band.mid[0] * predicted["rate"] ** band.axes["round"]
            seen = line >= max(lowest, bands.SMALLEST)
            panel.plot(band.axes[axis][seen], line[seen], linestyle="--", **look)
        for what, style in list(PREDICTED.values())[1:]:
            if predicted.get(what):
                panel.axhline(predicted[what], linestyle=style, **look)


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

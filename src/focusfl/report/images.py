"""The image experiment in pictures: accuracy by rounds, and who has which classes."""

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from focusfl.experiment.images import LAST, Curve
from focusfl.report.figure import blank
from focusfl.report.names import COLOURS, label, looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Test accuracy in the public logs of the paper, by round. Their baselines train
# through shared storage and are not the algorithms they are named after.
PUBLISHED_AT = (1000, 2000, 4000, 6000, 8000, 10_000)
PUBLISHED = {
    ("bernoulli", "focus"): (0.488, 0.609, 0.713, 0.747, 0.780, 0.778),
    ("bernoulli", "fedau"): (0.424, 0.529, 0.642, 0.680, 0.737, 0.751),
    ("bernoulli", "scaffold"): (0.253, 0.303, 0.404, 0.437, 0.473, 0.485),
}
# In the end: the mean of the last ten evaluations, as `final` is; in brackets the last
# one alone, where the mean is not known.
PUBLISHED_FINAL = {
    ("bernoulli", "focus"): "0.788",
    ("bernoulli", "fedau"): "0.747",
    ("bernoulli", "scaffold"): "(0.485)",
}
CLASSES = (
    "airplane automobile bird cat deer dog frog horse ship truck"
).split()  # fmt: skip
HEADERS = (
    "participation", "algorithm", "step", "lr", "at 2,000", "final", "published",
    "rounds/s", "tracking gap",
)  # fmt: skip


def lines(curves: list[Curve]) -> list[tuple[str, ...]]:
    """One line for each run; final is the mean of the last evaluations."""
    rows: list[tuple[str, ...]] = []
    for curve in curves:
        run = curve.run
        known = PUBLISHED_FINAL.get((run.participation, run.algorithm), "–")
        early = dict(zip(curve.at, curve.accuracy, strict=True)).get(2000)
        end = f"{curve.final:.3f}"
        if curve.diverged_at is not None:
            end = f"diverged at {curve.diverged_at:,}"
        rows.append(
            (
                run.participation,
                label(run.algorithm),
                run.step,
                f"{run.lr:g}",
                "–" if early is None else f"{early:.3f}",
                end,
                known if run.step == "paper" else "–",
                "–" if curve.rate is None else f"{curve.rate:.3g}",
                "–" if curve.tracking_gap is None else f"{curve.tracking_gap:.0e}",
            )
        )
    return rows


def accuracy_figure(curves: list[Curve]) -> "Figure":
    """Draw accuracy by rounds: at the paper's step, and each at its own.

    Several seeds are drawn as their mean; published curves are dashed.
    """
    names = list(dict.fromkeys(curve.run.algorithm for curve in curves))
    look = looks(names)
    panels = list(dict.fromkeys((c.run.participation, c.run.step) for c in curves))
    figure = blank(figsize=(1.2 + 4.2 * len(panels), 3.8), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (scenario, step) in zip(grid, panels, strict=True):
        there = [
            c for c in curves if (c.run.participation, c.run.step) == (scenario, step)
        ]
        for name, same in groupby(
            sorted(there, key=lambda c: names.index(c.run.algorithm)),
            lambda c: c.run.algorithm,
        ):
            runs = list(same)
            shortest = min(runs, key=lambda c: len(c.at))
            mean = np.mean([c.accuracy[: len(shortest.at)] for c in runs], 0)
            called = label(name)
            if step != "paper":
                called += f", {runs[0].run.lr:g}"
            panel.plot(shortest.at, mean, label=called, **look[name])
            known = PUBLISHED.get((scenario, name))
            if known and step == "paper" and shortest.at[-1] >= PUBLISHED_AT[0]:
                style = look[name] | {"linestyle": "--", "linewidth": 1.0}
                panel.plot(PUBLISHED_AT, known, marker="o", markersize=3, **style)
        title = "the paper's step" if step == "paper" else "each at its own step"
        panel.set_title(f"{scenario}, {title}", fontsize=11)
        panel.set_xlabel("rounds")
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=9, loc="lower right")
    grid[0].set_ylabel("test accuracy")
    return figure


def bubble_figure(counts: Int[np.ndarray, "clients classes"]) -> "Figure":
    """Draw how many samples of each class every client has, as areas."""
    clients, classes = counts.shape
    figure = blank(figsize=(1.6 + 0.27 * clients, 0.9 + 0.3 * classes))
    panel = figure.subplots()
    client, kind = np.nonzero(counts)
    area = 190 * counts[client, kind] / counts.max()
    panel.scatter(client, kind, area, color=COLOURS[0], alpha=0.75, linewidths=0)
    named = CLASSES if classes == len(CLASSES) else range(classes)
    panel.set_yticks(range(classes), [str(name) for name in named])
    panel.set_xticks(range(0, clients, max(1, clients // 16)))
    panel.set(xlabel="client", xlim=(-0.8, clients - 0.2), ylim=(classes - 0.4, -0.6))
    panel.grid(alpha=0.2, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


KEY = (
    f"final: mean of the last {LAST} evaluations. published: the same of the public "
    "log; in brackets its last alone."
)

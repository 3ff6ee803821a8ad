"""Curves over seeds: quartiles after every round, thinned, and against the best."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.core.metrics import in_words, rises
from focusfl.studies.report.columns import quartiles
from focusfl.studies.report.groups import GAP
from focusfl.studies.store import Columns, Run, axes_of

LABELS = {  # of the metrics, in the order they are offered
    "distance": "‖x − x*‖ / ‖x*‖",
    GAP: "F(x) − F*",
    "loss": "loss",
    "grad_norm": "‖∇F(x)‖",
    "accuracy": "accuracy",
}
AXIS_LABELS = {
    "round": "rounds",
    "vectors_sent": "vectors sent",
    "gradients": "gradient evaluations",
    "seconds": "seconds",
    "bytes_up": "bytes up",
}
SHORT = {"distance": "distance", "grad_norm": "gradient norm", GAP: "F − F*"}
SMALLEST = 1e-17  # what is below is rounding, and zero has no logarithm

Curve = Float[np.ndarray, " rounds"]


class Band(NamedTuple):
    """A metric after every round: quartiles over seeds."""

    axes: dict[str, Curve]  # by name: where on this axis a round ends; medians
    low: Curve
    mid: Curve
    high: Curve

    def map(self, change: Callable[[Curve], Curve]) -> "Band":
        """Change the quartiles, and leave the axes."""
        return Band(self.axes, change(self.low), change(self.mid), change(self.high))

    def at(self, places: Any) -> "Band":
        """The rounds at these places alone."""
        axes = {name: values[places] for name, values in self.axes.items()}
        return Band(axes, self.low[places], self.mid[places], self.high[places])


def metrics_of(runs: Iterable[Run]) -> list[str]:
    """The metrics that some run has, those of LABELS first."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    return [n for n in LABELS if n in names] + [n for n in names if n not in LABELS]


def band(runs: list[Run], metric: str) -> Band | None:
    """Quartiles over seeds after every round, until half of the runs have diverged.

    A run that stopped early keeps its last value; one that diverged counts as worst.
    """
    evaluated = [_evaluated(run, metric) for run in runs if metric in run.curves]
    if not evaluated:
        return None
    # Those in which every run was evaluated, or had ended before.
    ends = [curves["round"] for _, curves in evaluated]
    rounds = np.unique(np.concatenate(ends))
    shared = [np.isin(rounds, each) | (rounds > each[-1]) for each in ends]
    rounds = rounds[np.all(shared, axis=0)]
    worst = -np.inf if rises(metric) else np.inf
    values = np.empty((len(evaluated), len(rounds)))
    for row, (run, curves) in zip(values, evaluated, strict=True):
        at = np.searchsorted(curves["round"], rounds, side="right") - 1
        curve = np.where(np.isfinite(curves[metric]), curves[metric], worst)
        row[:] = curve[at]
        if run.row["diverged_at"] is not None:
            row[rounds > curves["round"][-1]] = worst
    low, mid, high = quartiles(values)
    broken = np.flatnonzero(~np.isfinite(mid))
    end = max(1, broken[0]) if len(broken) else len(rounds)
    axes = {
        axis: np.median([np.interp(rounds, c["round"], c[axis]) for _, c in evaluated], axis=0)
        for axis in axes_of(run for run, _ in evaluated)
    }
    axes["round"] = rounds.astype(float)  # a run that stopped early keeps its place
    return Band(axes, low, mid, high).at(slice(end))


def _evaluated(run: Run, metric: str) -> tuple[Run, Columns]:
    """A run without the rounds after which a metric was not evaluated."""
    there = ~np.isnan(run.curves[metric])
    if there.all() or run.row["diverged_at"] is not None:  # then it is not a number
        return run, run.curves
    return run, {name: values[there] for name, values in run.curves.items()}


def relative(bands: list[Band], metric: str, axis: str) -> list[Band]:
    """Bands of one scenario against the best of them.

    The loss: above the lowest reached. The accuracy and all that rises: minus the best
    at the same place of the axis. All else: divided by the best there.
    """
    if metric == "loss":
        lowest = min(float(band.low.min()) for band in bands)
        return [band.map(lambda values: values - lowest) for band in bands]
    return [_against(band, bands, metric, axis) for band in bands]


def _against(band: Band, bands: list[Band], metric: str, axis: str) -> Band:
    there = [np.interp(band.axes[axis], each.axes[axis], each.mid) for each in bands]
    if rises(metric):
        return band.map(lambda values: values - np.max(there, axis=0))
    best = np.maximum(np.min(there, axis=0), SMALLEST)
    return band.map(lambda values: np.maximum(values, SMALLEST) / best)


def relative_label(metric: str) -> str:
    """What `relative` gives, in words."""
    if metric == "loss":
        return "loss above the lowest reached"
    if rises(metric):
        return f"{short(metric)} minus the best there"
    return f"{short(metric)} ÷ the best there"


def label(metric: str) -> str:
    """A metric, in words."""
    return LABELS.get(metric, short(metric))


def short(metric: str) -> str:
    """A metric, in a word or two."""
    return SHORT.get(metric, in_words(metric))


def thinned(band: Band, points: int) -> Band:
    """At most so many rounds: first, last, and the peaks of every stretch between.

    Stretches are of even length for half of them, and of even ratio for the others:
    what happens early is told in as much detail.
    """
    length = len(band.mid)
    if length <= points:
        return band
    stretches = max(1, (points - 2) // 8)  # four peaks each, and two kinds
    ends = (1, length - 1, stretches)
    cuts = np.concatenate([np.linspace(*ends), np.geomspace(*ends)]).astype(int)
    cuts = np.unique(cuts)
    places = {0, length - 1}
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        for pick, values in [
            (np.argmin, band.mid), (np.argmax, band.mid),
            (np.argmin, band.low), (np.argmax, band.high),
        ]:  # fmt: skip
            places.add(int(start + pick(values[start:stop])))
    return band.at(sorted(places))

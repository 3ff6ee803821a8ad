"""Curves over seeds: quartiles after every round, thinned, and against the best."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from focusfl.experiment.results import AXES, Run
from focusfl.report.groups import quartiles

LABELS = {  # of the metrics, in the order they are offered
    "distance": "relative distance to the optimum",
    "loss": "loss",
    "grad_norm": "norm of the gradient",
    "accuracy": "accuracy",
}
AXIS_LABELS = dict(
    zip(
        AXES, ("rounds", "vectors sent", "gradient evaluations", "seconds"), strict=True
    )
)
RISING = "accuracy"  # more of it is better; of all else, less
SMALLEST = 1e-17  # what is below is rounding, and zero has no logarithm

Curve = Float[np.ndarray, " rounds"]


class Band(NamedTuple):
    """A metric after every round: quartiles over seeds."""

    axes: dict[str, Curve]  # by name: where on this axis a round ends; medians
    low: Curve
    mid: Curve
    high: Curve


def metrics_of(runs: Iterable[Run]) -> list[str]:
    """The metrics that some run has, those of LABELS first."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    return [n for n in LABELS if n in names] + [n for n in names if n not in LABELS]


def band(runs: list[Run], metric: str) -> Band | None:
    """Quartiles over seeds after every round, until half of the runs have diverged.

    A run that stopped early keeps its last value; one that diverged counts as worst.
    """
    runs = [run for run in runs if metric in run.curves]
    if not runs:
        return None
    rounds = _shared_rounds(runs)
    worst = -np.inf if metric == RISING else np.inf
    values = np.empty((len(runs), len(rounds)))
    for row, run in zip(values, runs, strict=True):
        row[:] = _at(run, metric, rounds)
        row[~np.isfinite(row)] = worst
        if run.row["diverged_at"] is not None:
            row[rounds > run.curves["round"][-1]] = worst
    low, mid, high = quartiles(values)
    broken = np.flatnonzero(~np.isfinite(mid))
    end = max(1, broken[0]) if len(broken) else len(rounds)
    axes = {
        axis: np.median([_at(run, axis, rounds) for run in runs], axis=0)
        for axis in AXES
    }
    return _each(Band(axes, low, mid, high), lambda values: values[:end])


def relative(bands: list[Band], metric: str, axis: str) -> list[Band]:
    """Bands of one scene against the best of them.

    The loss: above the lowest reached. The accuracy: minus the best at the same place
    of the axis. All else: divided by the best there.
    """
    if metric == "loss":
        lowest = min(float(one.low.min()) for one in bands)
        return [_changed(one, lambda values: values - lowest) for one in bands]
    return [_against(one, bands, metric, axis) for one in bands]


def _against(one: Band, bands: list[Band], metric: str, axis: str) -> Band:
    there = [np.interp(one.axes[axis], b.axes[axis], b.mid) for b in bands]
    if metric == RISING:
        return _changed(one, lambda values: values - np.max(there, axis=0))
    best = np.maximum(np.min(there, axis=0), SMALLEST)
    return _changed(one, lambda values: np.maximum(values, SMALLEST) / best)


def relative_label(metric: str) -> str:
    """What `relative` gives, in words."""
    if metric == "loss":
        return "loss above the lowest reached"
    if metric == RISING:
        return "accuracy minus the best there"
    return f"{_short(metric)} ÷ the best there"


def label(metric: str) -> str:
    """A metric, in words."""
    return LABELS.get(metric, _short(metric))


def thinned(one: Band, points: int) -> Band:
    """At most so many rounds: first, last, and the peaks of every stretch between.

    Stretches are of even length for half of them, and of even ratio for the others:
    what happens early is told in as much detail.
    """
    length = len(one.mid)
    if length <= points:
        return one
    stretches = max(1, (points - 2) // 8)  # four peaks each, and two kinds
    ends = (1, length - 1, stretches)
    cuts = np.concatenate([np.linspace(*ends), np.geomspace(*ends)]).astype(int)
    cuts = np.unique(cuts)
    keep = {0, length - 1}
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        for pick, values in [
            (np.argmin, one.mid), (np.argmax, one.mid),
            (np.argmin, one.low), (np.argmax, one.high),
        ]:  # fmt: skip
            keep.add(int(start + pick(values[start:stop])))
    at: Int[np.ndarray, " kept"] = np.array(sorted(keep))
    return _each(one, lambda values: values[at])


def _short(metric: str) -> str:
    short = {"grad_norm": "norm of the gradient"}
    return short.get(metric, metric.replace("_", " "))


def _shared_rounds(runs: list[Run]) -> np.ndarray:
    """The rounds in which every run was evaluated, or had ended before."""
    own = [run.curves["round"] for run in runs]
    rounds = np.unique(np.concatenate(own))
    known = [np.isin(rounds, mine) | (rounds > mine[-1]) for mine in own]
    return rounds[np.all(known, axis=0)]


def _at(run: Run, name: str, rounds: np.ndarray) -> np.ndarray:
    """A curve in these rounds; past its end, its last value."""
    places = np.searchsorted(run.curves["round"], rounds)
    return run.curves[name][np.minimum(places, len(run.curves["round"]) - 1)]


def _each(one: Band, change: Callable[[Curve], Curve]) -> Band:
    axes = {axis: change(values) for axis, values in one.axes.items()}
    return _changed(one._replace(axes=axes), change)


def _changed(one: Band, change: Callable[[Curve], Curve]) -> Band:
    return Band(one.axes, change(one.low), change(one.mid), change(one.high))

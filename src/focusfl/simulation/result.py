"""What a run gives: the model, its metrics round by round, and what it cost."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

import numpy as np

from focusfl.core import Algorithm, C, S, tree
from focusfl.core.extras import missing, pandas
from focusfl.core.tree import Tree
from focusfl.core.validation import unknown
from focusfl.models import read_with_about, save_model
from focusfl.simulation.evaluation import rises

KEPT = "focusfl.result"  # beside the model in its file
# What a round takes, not how good its model is.
COSTS = ("down", "up", "gradients", "bytes_up", "seconds", "lost")


@dataclass(frozen=True, eq=False, repr=False)
class Result(Generic[S, C]):
    """One run. Metrics and trajectory begin at x0: entry r + 1 is after round r.

    Metrics are NaN in rounds that were not evaluated; x0 and `x`, the first and the
    last, always are. Costs, which are metrics too, are known in every round.
    """

    x: Tree  # the server's model after the last round
    metrics: dict[str, np.ndarray]  # distance, loss, grad_norm, ...; see `costs`
    trajectory: Tree | None  # (rounds + 1, ...) with record_models=True
    diverged_at: int | None  # the round that broke it; everything else ends before it
    lr: float  # under a schedule, the largest that was used
    why_lr: str | None  # how it was chosen, where it was not given
    server: S
    clients: C | None  # every client's memory, stacked; None if the run diverged
    schedule: str | None = None  # lr as a function of the round, in words
    weights: Any = None  # how much each of these counts; None: all alike
    # With per_client=True, what `x` is to each: arrays of shape (clients,).
    clients_metrics: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def evaluated(self) -> np.ndarray:
        """The rounds done, 0 for x0, at which metrics were evaluated."""
        curves = [v for name, v in self.metrics.items() if name not in COSTS]
        length = len(next(iter(self.metrics.values())))
        known = [~np.isnan(np.asarray(curve, float)) for curve in curves]
        return np.flatnonzero(np.any(known, 0)) if known else np.arange(length)

    def __repr__(self) -> str:
        rounds = len(self.metrics.get("down", next(iter(self.metrics.values())))) - 1
        ends = {k: v[-1] for k, v in self.metrics.items() if k not in COSTS and len(v)}
        spent = {k: float(np.sum(v)) for k, v in self.metrics.items() if k in COSTS}
        how = "" if self.diverged_at is None else f", diverged in round {rounds}"
        step = "lr=" if self.schedule is None else "lr of up to "
        sent, done = (
            spent.get("down", 0) + spent.get("up", 0),
            spent.get("gradients", 0),
        )
        return "\n".join(
            [
                f"Result after {rounds:,} rounds at {step}{self.lr:.4g}{how}",
                "  " + ", ".join(f"{name} {value:.4g}" for name, value in ends.items()),
                f"  {sent:,.0f} vectors sent, {done:,.0f} gradients",
            ]
        )

    def to_frame(self) -> Any:
        """Give the metrics as a pandas DataFrame: a row per evaluated round.

        Raises:
            ValueError: If pandas is missing.
        """
        at = self.evaluated
        frame = pandas().DataFrame({name: v[at] for name, v in self.metrics.items()})
        frame.insert(0, "round", at)
        return frame

    def plot(self, metric: str | None = None, ax: Any = None, **options: Any) -> Any:
        """Draw a metric, the first there is, against rounds; give matplotlib's axes.

        Args:
            metric: such as "distance" or "accuracy".
            ax: axes to draw on; new ones if None.
            options: of matplotlib's `plot`, such as label="FOCUS".

        Raises:
            ValueError: If there is no such metric, or matplotlib is missing.
        """
        known = [name for name in self.metrics if name not in COSTS]
        metric = known[0] if metric is None else metric
        if metric not in known:
            raise ValueError(unknown("metric", metric, known))
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError:
                what = missing("figures need", "matplotlib", "plots")
                raise ValueError(what) from None
            ax = pyplot.figure().subplots()
        at, values = self.evaluated, self.metrics[metric]
        ax.plot(at, values[at], **options)
        if np.nanmin(values) > 0 and not rises(metric):
            ax.set_yscale("log")
        ax.set(xlabel="rounds", ylabel=metric.replace("_", " "))
        return ax

    def save(self, path: str | Path) -> Path:
        """Write the model as safetensors, with the metrics beside it.

        PyTorch and Flax read the model; `ff.load_result` gives model and metrics back.
        What server and clients remember is not kept.
        """
        about = {
            "metrics": {name: list(map(float, v)) for name, v in self.metrics.items()},
            "lr": self.lr,
            "why_lr": self.why_lr,
            "schedule": self.schedule,
            "diverged_at": self.diverged_at,
            "clients_metrics": {k: v.tolist() for k, v in self.clients_metrics.items()},
        }
        return save_model(path, self.x, {KEPT: json.dumps(about)})


def load_result(path: str | Path) -> Result:
    """Read what `Result.save` wrote; trajectory, server and clients are None.

    Raises:
        ValueError: If the file is damaged, or holds a model alone.
    """
    x, about = read_with_about(path)
    if KEPT not in about:
        raise ValueError(f"{path} holds a model and no result; use ff.load_model.")
    kept = json.loads(about[KEPT])
    metrics, own = (
        {name: np.array(values) for name, values in kept.pop(what, {}).items()}
        for what in ("metrics", "clients_metrics")
    )
    return Result(x, metrics, None, server=None, clients=None, clients_metrics=own, **kept)


def costs(
    algorithm: Algorithm,
    num_clients: int,
    counts: np.ndarray,
    local_steps: int,
    x: Tree = None,
) -> dict[str, np.ndarray]:
    """Vectors of the model's size sent and gradients computed per round.

    The warm start is entry 0. A local step computes one gradient. Of messages that are
    coded it is known for a model `x` how large they are: they count as that share of a
    vector, and the bytes that participants send are given too.
    """
    first = num_clients if algorithm.starts_warm else 0
    active = np.concatenate([[first], counts])
    gradients = np.concatenate([[first], local_steps * counts])
    down, up = algorithm.cost if x is None else algorithm.traffic(x)
    spent = {"down": down * active, "up": up * active, "gradients": gradients}
    return spent if x is None else spent | {"bytes_up": tree.nbytes(x) * spent["up"]}

"""The one record of a run's outcome: the model, its metrics and what it cost."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

import numpy as np

from focusfl.core import Algorithm, C, S, tree
from focusfl.core.extras import missing, pandas
from focusfl.core.files import parse_json
from focusfl.core.metrics import rises
from focusfl.core.models import read_with_about, save_model
from focusfl.core.tree import Tree
from focusfl.core.validation import unknown

METADATA = "focusfl.result"  # the name of all else in the model's file
# What a round takes, not how good its model is.
COSTS = ("down", "up", "gradients", "bytes_up", "seconds", "lost")


@dataclass(frozen=True, eq=False, repr=False)
class Result(Generic[S, C]):
    """The outcome of one run.

    Metrics and trajectory have an entry for x0 and one for every round: entry r + 1 is
    after round r. Metrics are NaN in rounds without an evaluation; x0 and the last model
    are always evaluated. Costs are metrics that every round has.

    Args:
        x: the server's model after the last round.
        metrics: arrays of shape (rounds + 1,): distance, loss, grad_norm, ... by problem,
            and the costs: "down" and "up" in vectors of the model's size, "bytes_up",
            "gradients", and "seconds" and "lost" where a latency model says them.
        trajectory: the models, leaves of shape (rounds + 1, ...), with record_models.
        diverged_at: the round that broke the run; all else here ends before it.
        lr: the step size; under a schedule the largest that was used.
        why_lr: how lr="auto" chose it.
        server: the server's state.
        clients: every client's state, stacked: leaves of shape (clients, ...). None if
            the run diverged.
        schedule: lr as a function of the round, in words.
        weights: of the clients; None if all count alike.
        clients_metrics: with per_client, each client's metrics of `x`, shape (clients,).
    """

    x: Tree
    metrics: dict[str, np.ndarray]
    trajectory: Tree | None
    diverged_at: int | None
    lr: float
    why_lr: str | None
    server: S
    clients: C | None
    schedule: str | None = None
    weights: Any = None
    clients_metrics: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def evaluated(self) -> np.ndarray:
        """The rounds done, 0 for x0, at which metrics were evaluated."""
        known = [~np.isnan(np.asarray(self.metrics[name], float)) for name in self._curves]
        return np.flatnonzero(np.any(known, 0)) if known else np.arange(self.rounds + 1)

    @property
    def rounds(self) -> int:
        """The rounds done."""
        return len(self.metrics.get("down", next(iter(self.metrics.values())))) - 1

    @property
    def vectors(self) -> np.ndarray:
        """Vectors of the model's size sent both ways by each entry, in all."""
        none = np.zeros(self.rounds + 1)
        return np.cumsum(self.metrics.get("down", none) + self.metrics.get("up", none))

    def error(self) -> tuple[str, np.ndarray]:
        """What a run is judged by, and its values at `evaluated`.

        That is the distance to the optimum, relative to the optimum's norm; where that is
        not known, the norm of the gradient relative to the first; else the loss.
        """
        curves = {name: self.metrics[name][self.evaluated] for name in self._curves}
        if "distance" in curves:
            return "distance", curves["distance"]
        if "grad_norm" in curves:
            first = curves["grad_norm"][0]
            return "grad_norm/first", curves["grad_norm"] / (first if first > 0 else 1.0)
        name = "loss" if "loss" in curves else next(iter(curves))
        return name, curves[name]

    def summary(self, target: float = 1e-8) -> dict[str, Any]:
        """Say the run in one line of figures, by name: a row of a table of runs.

        Args:
            target: an `error` to reach.

        Returns:
            lr, rounds, diverged_at; the last value of every metric; vectors (sent both
            ways), gradients, and the other costs in all; measure and error (see `error`;
            the median of its last tenth); rounds_to_target and vectors_to_target, which
            are None if the target was not reached.
        """
        measure, curve = self.error()
        reached = self.evaluated[curve <= target]
        at = int(reached[0]) if len(reached) else None
        costs = {k: float(np.sum(v)) for k, v in self.metrics.items() if k in COSTS}
        down, up = costs.pop("down", 0.0), costs.pop("up", 0.0)
        return {
            "lr": self.lr,
            "rounds": self.rounds,
            "diverged_at": self.diverged_at,
            **{name: float(self.metrics[name][-1]) for name in self._curves},
            "measure": measure,
            "error": float(np.median(curve[-max(1, len(curve) // 10) :])),
            "rounds_to_target": at,
            "vectors_to_target": None if at is None else float(self.vectors[at]),
            "vectors": down + up,
            **costs,
        }

    @property
    def _curves(self) -> list[str]:
        return [name for name in self.metrics if name not in COSTS]

    def __repr__(self) -> str:
        how = "" if self.diverged_at is None else f", diverged in round {self.rounds}"
        step = "lr=" if self.schedule is None else "lr of up to "
        ends = [f"{name} {self.metrics[name][-1]:.4g}" for name in self._curves]
        gradients = float(np.sum(self.metrics.get("gradients", 0)))
        return "\n".join(
            [
                f"Result after {self.rounds:,} rounds at {step}{self.lr:.4g}{how}",
                "  " + ", ".join(ends),
                f"  {self.vectors[-1]:,.0f} vectors sent, {gradients:,.0f} gradients",
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
        known = self._curves
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

        PyTorch and Flax read the model; `Result.load` gives model and metrics back. The
        states of server and clients are not saved.
        """
        about = {
            "metrics": {name: list(map(float, v)) for name, v in self.metrics.items()},
            "lr": self.lr,
            "why_lr": self.why_lr,
            "schedule": self.schedule,
            "diverged_at": self.diverged_at,
            "clients_metrics": {k: v.tolist() for k, v in self.clients_metrics.items()},
        }
        return save_model(path, self.x, {METADATA: json.dumps(about)})

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read what `save` wrote; trajectory, server and clients are None.

        Raises:
            ValueError: If the file is damaged, or holds a model alone.
        """
        x, about = read_with_about(path)
        if METADATA not in about:
            raise ValueError(f"{path} holds a model and no result; use core.models.read_model.")
        try:
            saved = parse_json(about[METADATA])
            metrics, own = (
                {name: np.array(values, float) for name, values in saved.pop(what, {}).items()}
                for what in ("metrics", "clients_metrics")
            )
            return cls(x, metrics, None, server=None, clients=None, clients_metrics=own, **saved)  # type: ignore[arg-type]
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} holds a result that cannot be read: {error}.") from None


def costs(
    algorithm: Algorithm, num_clients: int, counts: np.ndarray, local_steps: int, x: Tree = None
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

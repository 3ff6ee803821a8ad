"""What a run gives: the model, its metrics round by round, and what it cost."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.core import Algorithm
from focusfl.tree import Tree

COSTS = ("down", "up", "gradients")  # what a round takes, not how good its model is


@dataclass(frozen=True, eq=False)
class Result:
    """One run. Metrics and trajectory begin at x0: entry r + 1 is after round r.

    Metrics are NaN in rounds that were not evaluated; x0 and `x`, the first and the
    last, always are. Costs, which are metrics too, are known in every round.
    """

    x: Tree  # the server's model after the last round
    metrics: dict[str, np.ndarray]  # distance, loss, grad_norm, ...; see `costs`
    trajectory: Tree | None  # (rounds + 1, ...) with record="model"
    diverged_at: int | None  # the round that broke it; everything else ends before it
    lr: float
    why_lr: str | None  # how it was chosen, where it was not given
    server: Any
    clients: Any  # every client's memory, stacked; None if the run diverged

    @property
    def evaluated(self) -> np.ndarray:
        """The rounds done, 0 for x0, at which metrics were evaluated."""
        curves = [v for name, v in self.metrics.items() if name not in COSTS]
        length = len(next(iter(self.metrics.values())))
        known = [~np.isnan(np.asarray(curve, float)) for curve in curves]
        return np.flatnonzero(np.any(known, 0)) if known else np.arange(length)


def costs(
    algorithm: Algorithm, num_clients: int, counts: np.ndarray, local_steps: int
) -> dict[str, np.ndarray]:
    """Vectors of the model's size sent and gradients computed per round.

    The warm start is entry 0. A local step computes one gradient.
    """
    first = num_clients if algorithm.starts_warm else 0
    active = np.concatenate([[first], counts])
    gradients = np.concatenate([[first], local_steps * counts])
    down, up = algorithm.cost
    return {"down": down * active, "up": up * active, "gradients": gradients}

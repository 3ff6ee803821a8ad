"""m clients drawn one after the other without replacement, in proportion to weights."""

from dataclasses import dataclass

import numpy as np

from focusfl import keys
from focusfl.participation.model import (
    Marginals,
    Participation,
    PerClient,
    check_count,
    check_size,
    first_to_ring,
)

EXACT_WORK = 10**9  # largest N * N * m * nodes for which p is integrated, not sampled
NODES = 1024
SAMPLES = 20_000


@dataclass(frozen=True, eq=False)
class Weighted(Participation):
    """m clients drawn without replacement, in proportion to weights w.

    The chance p_i to be among them is not m * w_i, and q_i = p_i / m is not w_i.
    """

    m: int
    w: PerClient

    def __post_init__(self):
        check_count("m", self.m)
        w = np.asarray(self.w, float)
        if w.ndim != 1 or not len(w) or not np.all((w > 0) & np.isfinite(w)):
            raise ValueError(
                "w must be a list of positive weights, one per client; "
                f"got {np.array2string(w, threshold=8)}."
            )
        object.__setattr__(self, "w", w / w.sum())

    def check(self, num_clients):
        if len(self.w) != num_clients:
            raise ValueError(
                f"w must have one entry per client; got {len(self.w)} "
                f"for {num_clients} clients."
            )
        check_size(num_clients, self.m)

    def draw(self, state, rounds, num_clients, rng):
        # The first m arrivals of independent exponential clocks with rates w.
        clocks = rng.standard_exponential((len(rounds), num_clients)) / self.w
        return state, first_to_ring(clocks, self.m)

    def marginals(self, num_clients):
        self.check(num_clients)
        if self.m == num_clients:
            return Marginals(
                np.ones(num_clients), np.full(num_clients, 1 / num_clients)
            )
        if num_clients**2 * self.m * NODES <= EXACT_WORK:
            p = inclusion(self.w, self.m)
            return Marginals(p, p / self.m)
        _, drawn = self.draw(
            None, range(SAMPLES), num_clients, keys.rng(0, "marginals")
        )
        p = np.bincount(np.concatenate(drawn), minlength=num_clients) / SAMPLES
        error = np.sqrt(p * (1 - p) / SAMPLES)
        return Marginals(p, p / self.m, error, error / self.m)


def inclusion(w: PerClient, m: int) -> PerClient:
    """P(i is among the first m of exponential clocks with rates w), by quadrature.

    The chance is the integral of w_i exp(-w_i t) P(fewer than m of the others have rung
    by t). In log t the integrand is smooth and dies at both ends, so that the
    trapezoidal rule converges geometrically.
    """
    log_t, step = np.linspace(
        -40 - np.log(w.max()), 4 - np.log(w.min()), NODES, retstep=True
    )
    hazard = np.exp(log_t)[:, None] * w
    silent = np.exp(-hazard)
    rung = -np.expm1(-hazard)
    out = np.empty(len(w))
    for i in range(len(w)):
        count = np.zeros((NODES, m))  # P(exactly c of the others have rung), c < m
        count[:, 0] = 1
        for j in range(len(w)):
            if j != i:
                moved = count * rung[:, j, None]
                count *= silent[:, j, None]
                count[:, 1:] += moved[:, :-1]
        out[i] = step * (hazard[:, i] * silent[:, i]) @ count.sum(1)
    return out

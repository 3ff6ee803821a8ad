"""Each client tosses its own coin. Rounds may be empty."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from focusfl.participation.model import Marginals, Participation, PerClient, ids_of

DRAWS = 1 << 24  # random numbers held at once


@dataclass(frozen=True, eq=False)
class Bernoulli(Participation):
    """Each client tosses its own coin: p for all, or one p per client."""

    p: float | PerClient

    def __post_init__(self):
        p = np.asarray(self.p, float)
        if p.ndim > 1:
            raise ValueError(
                f"p must be a number or one per client; got shape {p.shape}."
            )
        bad = p[~((p > 0) & (p <= 1))]
        if bad.size:
            raise ValueError(
                f"p must lie in (0, 1]; got {bad.flat[0]}. "
                "Leave clients that never take part out of the problem."
            )
        object.__setattr__(self, "p", p)

    def check(self, num_clients):
        if np.ndim(self.p) and np.size(self.p) != num_clients:
            raise ValueError(
                f"p must have one entry per client; got {np.size(self.p)} "
                f"for {num_clients} clients."
            )

    def draw(self, state, rounds, num_clients, rng):
        drawn = []
        at_once = max(1, DRAWS // num_clients)
        for start in range(0, len(rounds), at_once):
            size = (min(at_once, len(rounds) - start), num_clients)
            drawn += ids_of(rng.random(size) < self.p)
        return state, drawn

    def marginals(self, num_clients):
        p = np.broadcast_to(self.p, num_clients).copy()
        return Marginals(p, p * mean_reciprocal(p))


def mean_reciprocal(p: PerClient) -> Float[np.ndarray, " clients"]:
    """E[1 / (1 + number of others present)] for every client.

    The integral of s^K over [0, 1] is 1 / (1 + K), and E[s^K] is a product: a
    polynomial of degree N - 1, which Gauss-Legendre integrates exactly.
    """
    nodes, weights = np.polynomial.legendre.leggauss(len(p) // 2 + 1)
    s = (nodes[:, None] + 1) / 2
    log_factors = np.log1p(p * (s - 1))  # (nodes, N)
    others = log_factors.sum(1, keepdims=True) - log_factors
    return (weights / 2) @ np.exp(others)

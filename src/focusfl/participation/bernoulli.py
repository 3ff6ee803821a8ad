"""Each client tosses its own coin. Rounds may be empty."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from focusfl.participation.model import (
    FEW,
    Marginals,
    Numbers,
    Participation,
    PerClient,
    chances,
    check_each,
    ids_of,
    subset,
    uniforms,
)


@dataclass(frozen=True, eq=False)
class Bernoulli(Participation):
    """Each client tosses its own coin: p for all, or one p per client."""

    p: Numbers  # chance of a round, in (0, 1]: one for all clients, or one for each

    def __post_init__(self):
        object.__setattr__(self, "p", chances("p", self.p))

    def check(self, num_clients):
        check_each("p", self.p, num_clients)

    def draw(self, state, rounds, num_clients, rng):
        p, drawn = np.asarray(self.p), []
        if not p.ndim and num_clients > FEW:
            for _ in rounds:  # how many, then who
                many = rng.binomial(num_clients, p)
                drawn.append(subset(rng, num_clients, many))
            return state, drawn
        for _, coins in uniforms(rng, rounds, num_clients):
            drawn += ids_of(coins < p)
        return state, drawn

    def marginals(self, num_clients):
        self.check(num_clients)
        p = np.broadcast_to(self.p, num_clients).copy()
        return Marginals(p, p * mean_reciprocal(p))


def mean_reciprocal(p: PerClient) -> Float[np.ndarray, " clients"]:
    """E[1 / (1 + number of others present)] for every client.

    The integral of s^K over [0, 1] is 1 / (1 + K), and E[s^K] is a product: a
    polynomial of degree N - 1, which Gauss-Legendre integrates exactly.
    """
    s, weights = unit_gauss(len(p) - 1)
    log_factors = np.log1p(p * (s[:, None] - 1))  # (nodes, N)
    others = log_factors.sum(1, keepdims=True) - log_factors
    return weights @ np.exp(others)


@lru_cache(maxsize=8)  # finding the nodes costs more than using them once
def unit_gauss(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Find nodes and weights that integrate such polynomials over [0, 1] exactly."""
    nodes, weights = np.polynomial.legendre.leggauss(degree // 2 + 1)
    return (nodes + 1) / 2, weights / 2

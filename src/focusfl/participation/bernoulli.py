"""Each client tosses its own coin. Rounds may be empty."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from focusfl.core.registry import PARTICIPATION
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

NODES = 32  # of Gauss-Legendre in every panel
STEEP = 16.0  # how much the logarithm of an integrand falls in the first panel
NEGLIGIBLE = 45.0  # past this fall, e^-45, nothing is left that a float64 could show
HELD = 1 << 22  # numbers held at once


@PARTICIPATION.register("bernoulli")
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

    The integral of (1 - u)^K over [0, 1] is 1 / (1 + K), and E[(1 - u)^K] the product
    of 1 - p_j u over the others: at most exp(-u times the sum of their p).
    """
    value, which, count = np.unique(p, return_inverse=True, return_counts=True)
    out = np.zeros(len(value))
    rate = float(p.sum() - p.max())  # the least that the others of a client add up to
    for u, weights in decaying(len(p) - 1, rate, len(value)):
        if u.min() * rate > NEGLIGIBLE:
            break
        log_factors = np.log1p(-value * u[:, None])  # (nodes, values)
        others = (log_factors @ count)[:, None] - log_factors
        out += weights @ np.exp(others)
    return out[which]


def decaying(degree: int, rate: float, width: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield nodes and weights that integrate over [0, 1], a few nodes at a time.

    For products of some c + (1 - c) exp(-r u), 0 <= c < 1, with r up to `rate`, and for
    polynomials that these bound, of `degree` at most. Few clients: Gauss-Legendre,
    exactly. Many: panels from 0 to 16 / rate, and each as long as all before it, with
    32 nodes each. In the first the integrand is at most exp(rate |u|) in the whole
    complex plane, on the Bernstein ellipse of parameter 6 less than 2e14, and Gauss's
    error less than 5 * 2e14 * 6^-64 < 1e-34. In the later ones what has not died out
    changes by a factor of two of its scale, and the ellipse of parameter 3 gives
    5 * 3^-64 < 1e-29. `width` is how many numbers the caller has for every node.
    """
    ends = [1.0]
    if degree >= 2 * NODES and rate > STEEP:
        first = STEEP / rate
        ends = [first * 2**k for k in range(math.ceil(-math.log2(first)))] + [1.0]
    s, weights = unit_gauss(min(degree, 2 * NODES - 1))
    at_once = max(1, HELD // width)
    for start, end in zip([0.0, *ends], ends, strict=False):
        u = start + (end - start) * s
        for k in range(0, len(u), at_once):
            yield u[k : k + at_once], (end - start) * weights[k : k + at_once]


@lru_cache(maxsize=8)  # finding the nodes costs more than using them once
def unit_gauss(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Find nodes and weights that integrate such polynomials over [0, 1] exactly."""
    nodes, weights = np.polynomial.legendre.leggauss(degree // 2 + 1)
    return (nodes + 1) / 2, weights / 2

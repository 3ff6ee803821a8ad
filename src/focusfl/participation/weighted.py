"""m clients drawn one after the other, in proportion to weights."""

import math
from dataclasses import dataclass

import numpy as np

from focusfl import keys
from focusfl.checks import check_count, check_flag, numeric, shown
from focusfl.participation.bernoulli import unit_gauss
from focusfl.participation.model import (
    Marginals,
    Participation,
    PerClient,
    check_size,
    first_to_ring,
    uniforms,
)

EXACT_WORK = 10**9  # largest N * N * m * nodes for which p is integrated, not sampled
EXACT_SHARES = 2 * 10**8  # likewise for q with replacement: N (m + 64) min(m, N)
NODES = 1024
SAMPLES = 20_000


@dataclass(frozen=True, eq=False)
class Weighted(Participation):
    """m clients drawn in proportion to weights w, without replacement or with.

    Without, the chance p_i to be among them is not m * w_i, and q_i = p_i / m is not
    w_i. With replacement S is the set of those drawn: a client drawn twice takes part
    once, so that rounds are of at most m clients and q_i is not w_i either.
    """

    m: int  # draws a round
    w: list | PerClient  # positive weights, one per client; any scale
    replace: bool = False  # whether a client may be drawn twice in a round

    def __post_init__(self):
        check_count("m", self.m)
        check_flag("replace", self.replace)
        w = numeric("w", self.w)
        if w.ndim != 1 or w.dtype == bool or not np.all((w > 0) & np.isfinite(w)):
            raise ValueError(
                "w must be a list of positive weights, one per client; "
                f"got {shown(self.w)}."
            )
        if not len(w):
            raise ValueError("w must be a list of positive weights; got none.")
        object.__setattr__(self, "w", w / w.sum())

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        if len(self.w) != num_clients:
            raise ValueError(
                f"w must have one entry per client; got {len(self.w)} "
                f"for {num_clients} clients."
            )
        if not self.replace:
            check_size(num_clients, self.m)

    def draw(self, state, rounds, num_clients, rng):
        w = np.asarray(self.w)
        if self.replace:
            ends = w.cumsum()
            ends[-1] = 1  # rounding must not leave a gap at the end
            drawn = []
            for _, coins in uniforms(rng, rounds, self.m):
                ids = np.searchsorted(ends, coins, side="right")
                drawn += [np.unique(row) for row in ids]
            return state, drawn
        # The first m arrivals of independent exponential clocks with rates w.
        clocks = rng.standard_exponential((len(rounds), num_clients)) / w
        return state, first_to_ring(clocks, self.m)

    def marginals(self, num_clients):
        self.check(num_clients)
        n, m, w = num_clients, self.m, np.asarray(self.w)
        if self.replace:
            with np.errstate(divide="ignore"):  # one client, w = 1: log 0
                p = -np.expm1(m * np.log1p(-w))
            if n * (m + 64) * min(m, n) <= EXACT_SHARES:
                return Marginals(p, shares(w, m))
            return self._sampled()._replace(p=p, p_error=0.0)
        if m == n:
            return Marginals(np.ones(n), np.full(n, 1 / n))
        if n**2 * m * NODES <= EXACT_WORK:
            p = inclusion(w, m)
            return Marginals(p, p / m)
        return self._sampled()

    def _sampled(self):
        n = len(self.w)
        _, drawn = self.draw(None, range(SAMPLES), n, keys.rng(0, "marginals"))
        ids, sizes = np.concatenate(drawn), [len(ids) for ids in drawn]
        share = 1 / np.repeat(sizes, sizes)
        p, q, q_square = (
            np.bincount(ids, share**power, minlength=n) / SAMPLES for power in range(3)
        )
        p_error = np.sqrt(p * (1 - p) / SAMPLES)
        variance = np.maximum(q_square - q**2, 0)  # rounding, where p is 1
        return Marginals(p, q, p_error, np.sqrt(variance / SAMPLES))


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


def shares(w: PerClient, m: int) -> PerClient:
    """E[1{i in S} / |S|] for the set S of m draws with replacement.

    E[s^|S|] is m! times the coefficient of z^m in the product of 1 + s (e^(w_j z) - 1)
    over clients. Replacing the factor of i by e^(w_i z) - 1 gives E[1{i in S}
    s^(|S| - 1)], whose integral over [0, 1] Gauss-Legendre finds exactly. The
    coefficient is a mean over the circle |z| = m, where it is the largest of all:
    nothing cancels, and with m + 64 points those it is mixed with have died out.
    """
    half = m // 2 + 32  # the other half of the circle holds the complex conjugates
    angle = np.pi * (np.arange(half) + 0.5) / half
    z = m * np.exp(1j * angle)
    drawn, missed = np.exp(np.multiply.outer(z - m, w)), np.exp(-m * w)  # times e^-m
    turn, one = np.exp(-1j * m * angle), np.ones((half, 1))
    out = np.zeros(len(w))
    for s, weight in zip(*unit_gauss(min(m, len(w)) - 1), strict=True):
        factors = (1 - s) * missed + s * drawn
        before = np.cumprod(np.hstack([one, factors[:, :-1]]), axis=1)
        after = np.cumprod(np.hstack([one, factors[:, :0:-1]]), axis=1)[:, ::-1]
        out += weight * (turn @ ((drawn - missed) * before * after)).real
    return out / half * np.exp(math.lgamma(m + 1) + m - m * np.log(m))

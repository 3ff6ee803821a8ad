"""m clients drawn one after the other, in proportion to weights."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.core import random as keys
from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, check_flag, numeric, shown
from focusfl.participation.bernoulli import HELD, unit_gauss
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
SAMPLES, FEWEST = 20_000, 32  # rounds that are sampled, fewer the more clients
SAMPLED_WORK = 2 * 10**7  # random numbers that it may take
A_SET = 10**4  # random numbers that cost as much as finding a set of a few
STRETCHES = 20  # of Newton's method, which needs a few


@PARTICIPATION.register("weighted")
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
                f"w must be a list of positive weights, one per client; got {shown(self.w)}."
            )
        if not len(w):
            raise ValueError("w must be a list of positive weights; got none.")
        object.__setattr__(self, "w", w / w.sum())

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        if len(self.w) != num_clients:
            raise ValueError(
                f"w must have one entry per client; got {len(self.w)} for {num_clients} clients."
            )
        if not self.replace:
            check_size(num_clients, self.m)

    def draw(self, state, rounds, num_clients, rng):
        w = np.asarray(self.w)
        if self.replace:
            drawn, ends = [], _ends(w)
            for _, coins in uniforms(rng, rounds, self.m):
                ids = np.searchsorted(ends, coins, side="right")
                drawn += [np.unique(row) for row in ids]
            return state, drawn
        drawn = []
        for _, clocks in _clocks(rng, rounds, w):
            drawn += first_to_ring(clocks, self.m)
        return state, drawn

    def marginals(self, num_clients):
        self.check(num_clients)
        n, m, w = num_clients, self.m, np.asarray(self.w)
        if m == 1:
            return Marginals(w, w)
        if self.replace:
            with np.errstate(divide="ignore"):  # one client, w = 1: log 0
                p = -np.expm1(m * np.log1p(-w))
            if n * (m + 64) * min(m, n) <= EXACT_SHARES:
                return Marginals(p, shares(w, m))
            q, error = sampled_shares(w, m)
            return Marginals(p, q, 0.0, error)
        if m == n:
            return Marginals(np.ones(n), np.full(n, 1 / n))
        if n**2 * m * NODES <= EXACT_WORK:
            p = inclusion(w, m)
            return Marginals(p, p / m)
        p, error = sampled_inclusion(w, m)
        return Marginals(p, p / m, error, error / m)


def sampled_inclusion(w: PerClient, m: int) -> tuple[PerClient, PerClient]:
    """The chance of each client to be among the first m, and its standard error.

    Given the clocks of all others, client i is if its own rings before the m-th of
    those: the mean of these chances varies much less than how often i is drawn, and is
    never 0. What remains is mostly an error of the common time at which the m-th clock
    rings; time is stretched so that the chances add up to m, as they must.
    """
    rng, mean = keys.rng(0, "marginals"), _Mean(len(w))
    for rounds in _blocks(len(w)):
        for _, clocks in _clocks(rng, rounds, w):
            ordered = np.partition(clocks, (m - 1, m), axis=1)
            last, after = ordered[:, m - 1, None], ordered[:, m, None]
            chance = -np.expm1(-w * np.where(clocks <= last, after, last))
            mean.add(chance.sum(0), (chance**2).sum(0), len(chance))
    hazard = -np.log1p(-np.minimum(mean.value, 1 - 1e-16))
    stretch = 1.0
    for _ in range(STRETCHES):
        excess = -np.expm1(-stretch * hazard).sum() - m
        stretch -= excess / (hazard @ np.exp(-stretch * hazard))
    p = -np.expm1(-stretch * hazard)
    return p, np.maximum(mean.error, np.abs(p - mean.value))


def sampled_shares(w: PerClient, m: int) -> tuple[PerClient, PerClient]:
    """E[1{i in S} / |S|] of m draws with replacement, and its standard error.

    Of m draws each may be the one that is i: it is with chance w_i, and then counts for
    1 / |S|, shared with the c others that are i too. So it is m w_i times the mean of
    1 / ((c + 1) |S|) with S of m - 1 draws and i: never 0, whoever is drawn.
    """
    rng, mean, ends = keys.rng(0, "marginals"), _Mean(len(w)), _ends(w)
    for rounds in _blocks(max(m, A_SET)):
        for _, coins in uniforms(rng, rounds, m - 1):
            for row in np.searchsorted(ends, coins, side="right"):
                ids, times = np.unique(row, return_counts=True)
                away, there = 1 / (len(ids) + 1), 1 / ((times + 1) * len(ids))
                mean.add(away, away**2, 1)
                mean.add(there - away, there**2 - away**2, 0, ids)
    q = m * w * mean.value
    return q / q.sum(), m * w * mean.error


class _Mean:
    """A mean of random vectors and its standard error, a few at a time."""

    def __init__(self, width: int):
        self._sums, self._all = np.zeros((2, width)), np.zeros((2, 1))
        self._count = 0

    def add(self, total: Any, squares: Any, count: int, ids: Any = None) -> None:
        """Add to everybody, a number being the same for all, or to some."""
        if np.ndim(total) == 0:
            self._all[:, 0] += total, squares
        else:
            self._sums[:, slice(None) if ids is None else ids] += total, squares
        self._count += count

    @property
    def value(self) -> PerClient:
        return (self._sums[0] + self._all[0]) / self._count

    @property
    def error(self) -> PerClient:
        variance = (self._sums[1] + self._all[1]) / self._count - self.value**2
        return np.sqrt(np.maximum(variance, 0) / self._count)  # below 0 by rounding


def _blocks(width: int) -> Iterator[range]:
    """Rounds to sample, so many that work and memory are bounded for any width."""
    count = min(SAMPLES, max(FEWEST, SAMPLED_WORK // width))
    at_once = max(1, HELD // width)
    for start in range(0, count, at_once):
        yield range(start, min(start + at_once, count))


def _clocks(rng, rounds, w):
    """Exponential clocks with rates w: the order in which they ring is who is drawn."""
    for run, clocks in uniforms(rng, rounds, len(w), "standard_exponential"):
        yield run, np.divide(clocks, w, out=clocks)


def _ends(w: PerClient) -> PerClient:
    ends = w.cumsum()
    ends[-1] = 1  # rounding must not leave a gap at the end
    return ends


def inclusion(w: PerClient, m: int) -> PerClient:
    """P(i is among the first m of exponential clocks with rates w), by quadrature.

    The chance is the integral of w_i exp(-w_i t) P(fewer than m of the others have rung
    by t). In log t the integrand is smooth and dies at both ends, so that the
    trapezoidal rule converges geometrically.
    """
    log_t, step = np.linspace(-40 - np.log(w.max()), 4 - np.log(w.min()), NODES, retstep=True)
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

"""Blocks of clients take turns. Nothing is random."""

import math
from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count
from focusfl.participation.model import Marginals, Participation, check_size


@PARTICIPATION.register("cyclic")
@dataclass(frozen=True, eq=False)
class Cyclic(Participation):
    """Blocks of m clients in turn, each sharing `overlap` clients with the next.

    Without overlap the blocks are disjoint, and the last one is shorter if m does not
    divide N: its clients are seen as often as the others but weigh more in a mean. With
    overlap the blocks go around a ring, m - overlap places a round, all of size m.
    """

    m: int  # clients a round
    overlap: int = 0  # clients that a block shares with the next, 0 to m - 1

    def __post_init__(self):
        check_count("m", self.m)
        check_count("overlap", self.overlap, least=0)
        if self.overlap >= self.m:
            raise ValueError(
                "overlap must be a whole number from 0 to m - 1; "
                f"got {self.overlap!r} for m = {self.m}."
            )

    def check(self, num_clients):
        check_size(num_clients, self.m)

    def draw(self, state, rounds, num_clients, rng):
        del rng  # deterministic
        return state, [self._block(r, num_clients) for r in rounds]

    def marginals(self, num_clients):
        """Average over a period, after which the blocks repeat."""
        self.check(num_clients)
        n, m, i = num_clients, self.m, np.arange(num_clients)
        if not self.overlap:
            period = math.ceil(n / m)
            size = np.where(i // m == period - 1, n - (period - 1) * m, m)
            return Marginals(np.full(n, 1 / period), 1 / (period * size))
        # In a period of n / apart rounds, blocks begin once at every multiple of apart.
        apart = math.gcd(n, m - self.overlap)
        p = (i // apart - (i - m) // apart) * (apart / n)
        return Marginals(p, p / m)

    def _block(self, r, n):
        if not self.overlap:
            start = r % math.ceil(n / self.m) * self.m
            return np.arange(start, min(start + self.m, n))
        start = r * (self.m - self.overlap)
        return np.sort(np.arange(start, start + self.m) % n)

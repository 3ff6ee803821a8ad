"""Each client falls asleep and wakes up: an on-off Markov chain of its own."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.participation.bernoulli import mean_reciprocal
from focusfl.participation.model import (
    Marginals,
    Numbers,
    Participation,
    chances,
    check_each,
    ids_of,
    uniforms,
)

ROUNDING = 1e-12  # what a chance may pass 1 by, so that wake = p / (1 - p) will do


@PARTICIPATION.register("markov")
@dataclass(frozen=True, eq=False)
class Markov(Participation):
    """Each client wakes up with chance `wake`, and is on for a share p of the rounds.

    An on client turns off with chance wake * (1 / p - 1). Absences last 1 / wake rounds
    on average, and the correlation of two rounds k apart is (1 - wake / p)^k: wake = p
    is Bernoulli(p), a small wake means long stretches on and off.
    """

    p: Numbers  # share of rounds on, in (0, 1]: one for all, or one per client
    wake: Numbers  # chance to turn on after a round off, likewise

    def __post_init__(self):
        p, wake = chances("p", self.p), chances("wake", self.wake)
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "wake", wake)
        if p.ndim and wake.ndim and len(p) != len(wake):
            raise ValueError(
                f"p and wake must have one entry per client each; got {len(p)} and {len(wake)}."
            )
        bad = np.flatnonzero(np.atleast_1d(self._sleep() > 1 + ROUNDING))
        if bad.size:
            i = bad[0]
            own_p, own_wake = (a.flat[i if a.ndim else 0] for a in (p, wake))
            raise ValueError(
                f"client {i} cannot be on for p = {own_p:g} of the rounds and wake up "
                f"with chance {own_wake:g}: it would have to turn off with chance "
                f"{own_wake * (1 / own_p - 1):g}. "
                f"Its wake can be {own_p / (1 - own_p):.6g} at most."
            )

    def check(self, num_clients):
        check_each("p", self.p, num_clients)
        check_each("wake", self.wake, num_clients)

    def begin(self, num_clients, rng):
        return rng.random(num_clients) < np.asarray(self.p)  # stationary from the start

    def draw(self, state, rounds, num_clients, rng):
        wake, stay = np.asarray(self.wake), 1 - self._sleep()
        drawn = []
        for _, coins in uniforms(rng, rounds, num_clients):
            on = np.empty(coins.shape, bool)
            for row, coin in zip(on, coins, strict=True):
                row[:] = state = coin < np.where(state, stay, wake)
            drawn += ids_of(on)
        return state, drawn

    def marginals(self, num_clients):
        # Clients are independent and stationary: one round is a round of Bernoulli(p).
        self.check(num_clients)
        p = np.broadcast_to(self.p, num_clients).copy()
        return Marginals(p, p * mean_reciprocal(p))

    def _sleep(self):
        return np.asarray(self.wake) * (1 / np.asarray(self.p) - 1)

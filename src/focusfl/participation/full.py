"""Everybody, every round."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.participation.model import Marginals, Participation


@PARTICIPATION.register("full")
@dataclass(frozen=True, eq=False)
class Full(Participation):
    """Everybody, every round."""

    def draw(self, state, rounds, num_clients, rng):
        del rng  # deterministic
        return state, [np.arange(num_clients)] * len(rounds)

    def marginals(self, num_clients):
        self.check(num_clients)
        return Marginals(np.ones(num_clients), np.full(num_clients, 1 / num_clients))

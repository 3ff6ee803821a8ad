"""m clients drawn uniformly, without replacement."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count
from focusfl.participation.model import (
    FEW,
    Marginals,
    Participation,
    check_size,
    first_to_ring,
    subset,
)


@PARTICIPATION.register("uniform")
@dataclass(frozen=True, eq=False)
class Uniform(Participation):
    """m clients drawn uniformly, without replacement."""

    m: int  # clients a round

    def __post_init__(self):
        check_count("m", self.m)

    def check(self, num_clients):
        check_size(num_clients, self.m)

    def draw(self, state, rounds, num_clients, rng):
        if num_clients <= FEW:
            return state, first_to_ring(rng.random((len(rounds), num_clients)), self.m)
        return state, [subset(rng, num_clients, self.m) for _ in rounds]

    def marginals(self, num_clients):
        self.check(num_clients)
        n = num_clients
        return Marginals(np.full(n, self.m / n), np.full(n, 1 / n))

"""Who takes part in runs side by side, drawn as they come to it."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np
from jaxtyping import Int

from focusfl.participation import Participation, schedule
from focusfl.participation.model import BLOCK, Ids

AHEAD = 1 << 22  # participants drawn before the run, for its slots to be chosen by


class Participants:
    """Those of the rounds to come, seed by seed; how many there were in those drawn.

    A run with few participants in all is drawn before it begins; a longer one in part,
    and from then on as far as it is asked for.
    """

    def __init__(
        self,
        participation: Participation,
        num_clients: int,
        rounds: int,
        seeds: Sequence[int],
    ):
        self._streams = [
            schedule(participation, num_clients, rounds, seed) for seed in seeds
        ]
        self._ready: list[deque[Ids]] = [deque() for _ in seeds]
        self._active: list[list[int]] = [[] for _ in seeds]
        self._rounds = rounds
        total = 0
        while not self.all and total < AHEAD:
            total += self._draw(BLOCK)
        # as far as the run is known before it begins
        self.ahead: list[list[Ids]] = [list(own) for own in self._ready]

    @property
    def all(self) -> bool:
        """Whether every round has been drawn."""
        return len(self._active[0]) == self._rounds

    @property
    def active(self) -> Int[np.ndarray, "seeds rounds"]:
        """|S_r| in all rounds drawn so far."""
        return np.array(self._active)

    def take(self, count: int) -> list[list[Ids]]:
        """Give the next so many rounds, or those that are left."""
        self.ahead = []  # no longer needed here
        if not self.all and len(self._ready[0]) < count:
            self._draw(count - len(self._ready[0]))
        return [
            [own.popleft() for _ in range(min(count, len(own)))] for own in self._ready
        ]

    def _draw(self, count: int) -> int:
        """Draw so many more rounds; say how many take part in them."""
        for stream, ready, active in zip(
            self._streams, self._ready, self._active, strict=True
        ):
            drawn = list(islice(stream, count))
            ready += drawn
            active += map(len, drawn)
        return sum(sum(active[-count:]) for active in self._active)

"""A server that does not wait: a reply counts when it comes."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count
from focusfl.participation.latency import LatencyModel, Work
from focusfl.participation.timed import Timed, check_timed


@PARTICIPATION.register("async")
@dataclass(frozen=True, eq=False)
class Async(Timed):
    """Everybody works all the time; a round is the next `replies` that arrive.

    A client that is heard gets the model as the round ends and goes back to work. So
    what it brings was begun at the model of the last round it was in, the first time
    at x0: engines run every algorithm like that under this law (`algorithms.Stale`).
    """

    latency: LatencyModel | dict  # how long everybody takes; or a table of its parts
    replies: int = 1  # arrivals that the server takes together
    work: Work | list | None = None  # of a reply; as the run has it if None

    def __post_init__(self):
        check_timed(self)
        check_count("replies", self.replies)

    @property
    def asynchronous(self):
        return True

    def check(self, num_clients):
        super().check(num_clients)
        if self.replies > num_clients:
            raise ValueError(
                "replies must not be more than the clients; got "
                f"{self.replies} for {num_clients} clients."
            )

    def begin(self, num_clients, rng):
        self.check(num_clients)
        pace = self.pace(num_clients)
        if not (pace.travel + pace.compute).min() > 0:
            raise ValueError(
                "clock must give every reply of an asynchronous run more than 0 "
                f"seconds; client {int((pace.travel + pace.compute).argmin())} takes "
                "none."
            )
        everybody = np.arange(num_clients)
        takes = pace.takes(everybody, self.factors(rng, num_clients))
        heap = [(pace.finish(i, 0.0, s), i) for i, s in enumerate(takes.tolist())]
        heapify(heap)
        return pace, pace.travel.tolist(), pace.compute.tolist(), heap

    def rounds_of(self, state, rounds, num_clients, rng):
        pace, travel, compute, heap = state  # a heap of many is not copied: it moves on
        vary = self.factors(rng, len(rounds) * self.replies)
        drawn, ends = [], []
        for own in vary.reshape(len(rounds), self.replies).tolist():
            came = [heappop(heap) for _ in own]
            now = came[-1][0]
            for (_, i), factor in zip(came, own, strict=True):
                takes = travel[i] + compute[i] * factor
                heappush(heap, (pace.finish(i, now, takes), i))
            drawn.append([i for _, i in came])
            ends.append(now)
        ids = list(np.sort(drawn, 1))
        return state, ids, np.array(ends), np.zeros(len(ends), int)

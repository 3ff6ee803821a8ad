"""A server that waits: for all it has asked, the first of them, or until a deadline."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, check_is, check_positive
from focusfl.participation.full import Full
from focusfl.participation.latency import LatencyModel, Work
from focusfl.participation.model import Participation
from focusfl.participation.timed import Timed, check_timed


@PARTICIPATION.register("sync")
@dataclass(frozen=True, eq=False)
class Sync(Timed):
    """Rounds one after the other, each as long as the slowest reply it waits for.

    It asks those of `among` who are there, at most `select` of them, drawn anew every
    round. It is over with the first `take` replies, or at the `deadline`; replies that
    have not come by then do not count, and their clients are as if not asked. Where
    nobody is there, it lasts until somebody may be: the next time of the trace.
    """

    latency: LatencyModel | dict  # how long everybody takes; or a table of its parts
    select: int | None = None  # clients asked, at most; all if None
    take: int | None = None  # replies that end a round; all if None
    deadline: float | int | None = None  # seconds a round lasts, at most
    among: Participation = Full()  # whom a round may ask
    work: Work | list | None = None  # of a reply; as the run has it if None

    def __post_init__(self):
        check_timed(self)
        for name in ("select", "take"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.deadline is not None:
            check_positive("deadline", self.deadline)
        check_is("among", self.among, Participation)
        if isinstance(self.among, Timed):
            raise ValueError("among must be a law without a clock of its own.")

    def check(self, num_clients):
        super().check(num_clients)
        self.among.check(num_clients)
        for name in ("select", "take"):
            most = num_clients if name == "select" or not self.select else self.select
            if (getattr(self, name) or 0) > most:
                raise ValueError(
                    f"{name} must be at most {most}, of those a round may ask; got "
                    f"{getattr(self, name)}."
                )

    def begin(self, num_clients, rng):
        return self.pace(num_clients), 0.0, self.among.begin(num_clients, rng)

    def rounds_of(self, state, rounds, num_clients, rng):
        pace, now, inner = state
        inner, asked = self.among.draw(inner, rounds, num_clients, rng)
        drawn, ends, lost = [], [], []
        for ids in asked:
            if pace.presence:
                there = pace.presence.there(now)
                ids = np.intersect1d(ids, there, assume_unique=True)
            if self.select and len(ids) > self.select:
                ids = np.sort(rng.choice(ids, self.select, replace=False))
            takes = pace.takes(ids, self.factors(rng, len(ids)))
            each = zip(ids.tolist(), takes.tolist(), strict=True)
            done = np.array([pace.finish(i, now, seconds) for i, seconds in each])
            now = self._end(now, done, pace)
            drawn.append(ids[done <= now])
            ends.append(now)
            lost.append(len(ids) - len(drawn[-1]))
        return (pace, now, inner), drawn, np.array(ends), np.array(lost)

    def _end(self, now, done, pace):
        """When a round ends that began now and whose replies would come like this."""
        if not len(done):
            wait = pace.presence.next_time(now) if pace.presence else now
            return wait if self.deadline is None else now + self.deadline
        last = len(done) if self.take is None else min(self.take, len(done))
        end = float(np.partition(done, last - 1)[last - 1])
        return end if self.deadline is None else min(end, now + self.deadline)

"""Participation that follows from how long everybody takes: servers that wait, or do not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from focusfl.core import random as keys
from focusfl.core import tree
from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import (
    check_count,
    check_is,
    check_not_negative,
    check_positive,
    shown,
    unknown,
)
from focusfl.participation.full import Full
from focusfl.participation.latency import LatencyModel, Pace, Work
from focusfl.participation.model import BLOCK, Ids, Marginals, Participation, PerClient

PerRound = Float[np.ndarray, " rounds"] | Int[np.ndarray, " rounds"]
SAMPLED = 2048  # rounds by which marginals are estimated


@dataclass(frozen=True, eq=False)
class Timed(Participation):
    """Who takes part follows from how long everybody takes.

    A run knows what a reply takes, its `work`; outside a run `work` must be given.
    """

    if TYPE_CHECKING:  # fields of every such model, among others
        latency: Any
        work: Any

    def rounds_of(
        self, state: Any, rounds: range, num_clients: int, rng: np.random.Generator
    ) -> tuple[Any, list[Ids], PerRound, PerRound]:
        """Draw rounds: who counts, the second each ends, and how many replies are lost."""
        raise NotImplementedError

    def draw(self, state, rounds, num_clients, rng):
        state, drawn, *_ = self.rounds_of(state, rounds, num_clients, rng)
        return state, drawn

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        self.latency.check(num_clients)

    def with_work(self, algorithm, params, local_steps):
        """Give this model with the work of one algorithm's replies."""
        if self.work is not None:
            return self
        down, up = algorithm.traffic(params)
        size = tree.nbytes(params)
        return replace(self, work=Work(int(local_steps), down * size, up * size))

    def timing(self, algorithm, num_clients, rounds, seed):
        """Give the seconds of every round, and how many replies were lost.

        Entry 0 is the warm start, which waits for everybody; a trace begins after it.
        """
        ends, lost = [0.0], [0]
        state = self.begin(num_clients, keys.rng(seed, "participation", "begin"))
        for start in range(0, rounds, BLOCK):
            block = range(start, min(start + BLOCK, rounds))
            rng = keys.rng(seed, "participation", start // BLOCK)
            state, _, end, missed = self.rounds_of(state, block, num_clients, rng)
            ends += end.tolist()
            lost += missed.tolist()
        seconds = np.diff(ends, prepend=0.0)
        if algorithm.starts_warm:
            pace = self.latency.pace(num_clients, self.known._replace(local_steps=1))
            takes = (pace.travel + pace.compute).tolist()
            seconds[0] = max(pace.finish(i, 0.0, s) for i, s in enumerate(takes))
        return {"seconds": seconds, "lost": np.array(lost)}

    def marginals(self, num_clients):
        """Estimate them from one long run, with the errors of independent rounds."""
        self.check(num_clients)
        state, drawn = self.begin(num_clients, keys.rng(0, "marginals")), []
        for start in range(0, SAMPLED, BLOCK):
            block = range(start, start + BLOCK)
            rng = keys.rng(0, "marginals", start)
            state, more = self.draw(state, block, num_clients, rng)
            drawn += more
        who = np.concatenate(drawn)
        sizes = np.array([len(ids) for ids in drawn])
        share = np.repeat(1 / np.maximum(sizes, 1), sizes)
        p, q, squares = (
            np.bincount(who, weight, num_clients) / SAMPLED for weight in (None, share, share**2)
        )
        return Marginals(p, q, _error(p - p * p), _error(squares - q * q))

    def pace(self, num_clients: int) -> Pace:
        """How long everybody takes for a reply."""
        return self.latency.pace(num_clients, self.known)

    def factors(self, rng: np.random.Generator, count: int) -> PerClient:
        """Factors of the compute of so many replies; they have a median of 1."""
        if not self.latency.jitter:
            return np.ones(count)
        return self.latency.factor(rng.standard_normal(count))

    @property
    def known(self) -> Work:
        """What a reply takes."""
        if self.work is None:
            raise ValueError(
                f"{type(self).__name__} must know what a reply takes: run it, or give "
                "work = [local steps, bytes down, bytes up]."
            )
        return self.work


def check_timed(model: Any) -> None:
    """Raise unless a model has latencies, and work that makes sense, if any."""
    latency = model.latency
    if isinstance(latency, Mapping):
        names = [*LatencyModel.__dataclass_fields__]
        if not latency:
            raise ValueError(f"latency must say one of {', '.join(names)}; got nothing.")
        for name in latency:
            if name not in names:
                raise ValueError("latency: " + unknown("part", name, names))
        latency = LatencyModel(**latency)
    check_is("latency", latency, LatencyModel)
    object.__setattr__(model, "latency", latency)
    if model.work is None:
        return
    try:
        steps, down, up = model.work
    except (TypeError, ValueError):
        raise ValueError(
            f"work must be local steps, bytes down and bytes up; got {shown(model.work)}."
        ) from None
    check_count("work: local steps", steps)
    check_not_negative("work: bytes down", down)
    check_not_negative("work: bytes up", up)
    object.__setattr__(model, "work", Work(steps, down, up))


def _error(variance: np.ndarray) -> np.ndarray:
    """Rounds follow each other, and these are taken for independent ones."""
    return np.sqrt(np.maximum(variance, 0) / SAMPLED)


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
            raise ValueError("among must be a participation model without latencies of its own.")

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


@PARTICIPATION.register("async")
@dataclass(frozen=True, eq=False)
class Async(Timed):
    """Everybody works all the time; a round is the next `replies` that arrive.

    A client that is heard gets the model as the round ends and goes back to work. So
    what it brings was begun at the model of the last round it was in, the first time
    at x0: engines run every algorithm like that then (`algorithms.Stale`).
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
                "latency must give every reply of an asynchronous run more than 0 "
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
        for factors in vary.reshape(len(rounds), self.replies).tolist():
            came = [heappop(heap) for _ in factors]
            now = came[-1][0]
            for (_, i), factor in zip(came, factors, strict=True):
                takes = travel[i] + compute[i] * factor
                heappush(heap, (pace.finish(i, now, takes), i))
            drawn.append([i for _, i in came])
            ends.append(now)
        ids = list(np.sort(drawn, 1))
        return state, ids, np.array(ends), np.zeros(len(ends), int)

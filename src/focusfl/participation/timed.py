"""Laws of participation that follow from how long everybody takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from focusfl.core import random as keys
from focusfl.core import tree
from focusfl.core.validation import (
    check_count,
    check_is,
    check_not_negative,
    shown,
    unknown,
)
from focusfl.participation.latency import LatencyModel, Pace, Work
from focusfl.participation.model import (
    BLOCK,
    Ids,
    Marginals,
    Participation,
    PerClient,
)

PerRound = Float[np.ndarray, " rounds"] | Int[np.ndarray, " rounds"]
SAMPLED = 2048  # rounds by which marginals are estimated


@dataclass(frozen=True, eq=False)
class Timed(Participation):
    """A law of who takes part that follows from how long everybody takes.

    Of a run it is known what a reply takes, its `work`; a law that is drawn from
    without one has to be told.
    """

    if TYPE_CHECKING:  # fields of every such law, among others
        latency: Any
        work: Any

    def rounds_of(
        self, state: Any, rounds: range, num_clients: int, rng: np.random.Generator
    ) -> tuple[Any, list[Ids], PerRound, PerRound]:
        """Draw rounds: who counts, the time each ends, and how many were asked in
        vain."""
        raise NotImplementedError

    def draw(self, state, rounds, num_clients, rng):
        state, drawn, *_ = self.rounds_of(state, rounds, num_clients, rng)
        return state, drawn

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        self.latency.check(num_clients)

    def fitted(self, algorithm, params, local_steps):
        """This law for the replies of one algorithm."""
        if self.work is not None:
            return self
        down, up = algorithm.traffic(params)
        size = tree.nbytes(params)
        return replace(self, work=Work(int(local_steps), down * size, up * size))

    def spent(self, algorithm, num_clients, rounds, seed):
        """Seconds of every round, and replies that were asked for in vain.

        Entry 0 is the warm start, which waits for everybody; a trace begins after it.
        """
        ends, lost = [0.0], [0]
        state = self.begin(num_clients, keys.rng(seed, "participation", "begin"))
        for start in range(0, rounds, BLOCK):
            block = range(start, min(start + BLOCK, rounds))
            rng = keys.rng(seed, "participation", start // BLOCK)
            state, _, end, vain = self.rounds_of(state, block, num_clients, rng)
            ends += end.tolist()
            lost += vain.tolist()
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


def check_timed(law: Any) -> None:
    """Raise unless a law has latencies, and work that makes sense, if any."""
    latency = law.latency
    if isinstance(latency, Mapping):
        names = [*LatencyModel.__dataclass_fields__]
        if not latency:
            raise ValueError(f"latency must say one of {', '.join(names)}; got nothing.")
        for name in latency:
            if name not in names:
                raise ValueError("latency: " + unknown("part", name, names))
        latency = LatencyModel(**latency)
    check_is("latency", latency, LatencyModel)
    object.__setattr__(law, "latency", latency)
    if law.work is None:
        return
    try:
        steps, down, up = law.work
    except (TypeError, ValueError):
        raise ValueError(
            f"work must be local steps, bytes down and bytes up; got {shown(law.work)}."
        ) from None
    check_count("work: local steps", steps)
    check_not_negative("work: bytes down", down)
    check_not_negative("work: bytes up", up)
    object.__setattr__(law, "work", Work(steps, down, up))


def _error(variance: np.ndarray) -> np.ndarray:
    """Rounds follow each other, and these are taken for independent ones."""
    return np.sqrt(np.maximum(variance, 0) / SAMPLED)

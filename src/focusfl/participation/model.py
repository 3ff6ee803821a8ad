"""Who takes part in a round: the contract, and how a schedule is drawn from it."""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from focusfl.core import Algorithm
from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_fits, numeric, shown

Ids = Int[np.ndarray, "_"]  # the participants of one round, in increasing order
PerClient = Float[np.ndarray, " clients"]
Numbers = float | int | list | PerClient  # one for all clients, or one per client

BLOCK = 64  # rounds drawn from one random stream; part of what a seed means
FEW = 1024  # clients up to which a number is drawn for each; past it, by participants
DRAWS = 1 << 24  # random numbers held at once


class Marginals(NamedTuple):
    """How often a client takes part, and how much it then weighs in a mean."""

    p: PerClient  # P(i in S)
    q: PerClient  # E[1{i in S} / |S|], 0 for an empty round
    p_error: PerClient | float = 0.0  # standard errors; 0 where the numbers are exact
    q_error: PerClient | float = 0.0


@dataclass(frozen=True, eq=False)
class Participation(abc.ABC):
    """A model of the sets S_0, S_1, ...: constants as fields, memory passed through."""

    def check(self, num_clients: int) -> None:
        """Raise ValueError if this cannot be drawn for so many clients."""
        check_count("num_clients", num_clients)

    def begin(self, num_clients: int, rng: np.random.Generator) -> Any:
        """Draw the memory before round 0. Almost always: none."""
        del num_clients, rng
        return None

    @abc.abstractmethod
    def draw(
        self, state: Any, rounds: range, num_clients: int, rng: np.random.Generator
    ) -> tuple[Any, list[Ids]]:
        """Draw the participants of consecutive rounds."""

    @abc.abstractmethod
    def marginals(self, num_clients: int) -> Marginals: ...

    @property
    def asynchronous(self) -> bool:
        """Whether those who take part come back, with work on the model they left
        with; else they begin at the newest."""
        return False

    def with_work(self, algorithm: Algorithm, params: Tree, local_steps: int) -> "Participation":
        """Give this model for one algorithm: where latencies count, it must know what a
        reply takes. Almost always: itself."""
        del algorithm, params, local_steps
        return self

    def timing(
        self, algorithm: Algorithm, num_clients: int, rounds: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Give the simulated seconds of every round, and how many replies were lost, where
        latencies are known; entry 0 is before round 0."""
        del algorithm, num_clients, rounds, seed
        return {}


def schedule(
    participation: Participation, num_clients: int, rounds: int, seed: int
) -> Iterator[Ids]:
    """Yield S_0, ..., S_{rounds-1}; who takes part depends on the seed alone.

    Args:
        participation: who takes part.
        num_clients: N.
        rounds: how many to draw.
        seed: of the draw; the same seed gives the same rounds.

    Raises:
        ValueError: If the model does not fit so many clients.
    """
    if not isinstance(participation, Participation):
        got = shown(participation)
        raise ValueError(f"participation must be a Participation; got {got}.")
    check_count("num_clients", num_clients)
    check_count("rounds", rounds, least=0)
    participation.check(num_clients)
    state = participation.begin(num_clients, keys.rng(seed, "participation", "begin"))
    for start in range(0, rounds, BLOCK):
        block = range(start, min(start + BLOCK, rounds))
        rng = keys.rng(seed, "participation", start // BLOCK)
        state, drawn = participation.draw(state, block, num_clients, rng)
        _check_drawn(type(participation).__name__, drawn, block, num_clients)
        yield from drawn


def _check_drawn(name: str, drawn: Any, block: range, num_clients: int) -> None:
    """Raise unless these are the participants of some rounds, as was agreed."""
    what = f"{name}.draw must give a list of {len(block)} arrays of clients, one for "
    what += f"each of rounds {block.start} to {block.stop - 1}"
    if not isinstance(drawn, list) or len(drawn) != len(block):
        got = f"{len(drawn)}" if isinstance(drawn, list) else f"{type(drawn).__name__}"
        raise ValueError(f"{what}; got {got}.")
    for ids in drawn:
        array = isinstance(ids, np.ndarray) and ids.ndim == 1
        if not array or ids.dtype.kind not in "iu":
            raise ValueError(f"{what}, in whole numbers; got {ids!r}.")
    who = np.concatenate(drawn)
    number = np.repeat(np.arange(len(drawn)), [len(ids) for ids in drawn])
    wrong = (who < 0) | (who >= num_clients)
    wrong[1:] |= (who[1:] <= who[:-1]) & (number[1:] == number[:-1])
    if wrong.any():
        first = int(number[wrong.argmax()])
        raise ValueError(
            f"{name}.draw must name each participant once, in increasing order, from 0 "
            f"to {num_clients - 1}; got {drawn[first].tolist()} in round "
            f"{block[first]}."
        )


def masks(
    participation: Participation, num_clients: int, rounds: int, seed: int
) -> Bool[np.ndarray, "rounds clients"]:
    """Draw a schedule as a matrix; what `Replay` takes.

    Args:
        participation: who takes part.
        num_clients: N.
        rounds: how many to draw.
        seed: of the draw; the same seed gives the same rounds.

    Raises:
        ValueError: If the model does not fit so many clients.
    """
    check_count("num_clients", num_clients)
    check_count("rounds", rounds, least=0)
    bits = f"a schedule of {rounds:,} rounds of {num_clients:,} clients as a matrix"
    check_fits(bits, rounds * num_clients // 8, "schedule(), which yields rounds")
    out = np.zeros((rounds, num_clients), bool)
    for row, ids in zip(out, schedule(participation, num_clients, rounds, seed), strict=True):
        row[ids] = True
    return out


def ids_of(masks: Bool[np.ndarray, "rounds clients"]) -> list[Ids]:
    """Turn rows of a matrix into lists of participants."""
    rows, ids = np.nonzero(masks)
    ends = np.searchsorted(rows, np.arange(1, len(masks) + 1)).tolist()
    return [ids[start:end] for start, end in pairwise([0, *ends])]


def first_to_ring(clocks: Float[np.ndarray, "rounds clients"], m: int) -> list[Ids]:
    """The m clients whose clocks ring first, in every row."""
    last = np.partition(clocks, m - 1, axis=1)[:, m - 1, None]
    return ids_of(clocks <= last)


def subset(rng: np.random.Generator, num_clients: int, m: int) -> Ids:
    """Draw m clients uniformly, at a cost that follows m."""
    ids = rng.choice(num_clients, m, replace=False, shuffle=False)
    ids.sort()
    return ids


def uniforms(
    rng: np.random.Generator, rounds: range, width: int, distribution: str = "random"
) -> Iterator[tuple[range, np.ndarray]]:
    """Yield runs of rounds, each with a (rounds, width) matrix of random numbers.

    They are uniform, or of another distribution, by the name that the generator has for it.

    A row after the other: the numbers of a round do not depend on how many follow.
    """
    at_once = max(1, DRAWS // width)
    for start in range(0, len(rounds), at_once):
        run = rounds[start : start + at_once]
        yield run, getattr(rng, distribution)((len(run), width))


def numbers(name: str, value: Any) -> Float[np.ndarray, "..."]:
    """Make an array of one number, or of a list with one per client."""
    array = numeric(name, value)
    if array.dtype == bool:
        raise ValueError(f"{name} must be numbers; got {shown(value)}.")
    if array.ndim > 1 or not array.size:
        raise ValueError(f"{name} must be a number or one per client; got shape {array.shape}.")
    return np.asarray(array, float)


def chances(name: str, value: Any) -> Float[np.ndarray, "..."]:
    """Make an array of one probability, or of a list; none of them may be 0."""
    array = numbers(name, value)
    bad = array[~((array > 0) & (array <= 1))]
    if bad.size:
        raise ValueError(
            f"{name} must lie in (0, 1]; got {bad.flat[0]}. "
            "Leave clients that never take part out of the problem."
        )
    return array


def check_each(name: str, value: Any, num_clients: int) -> None:
    """Raise if value is a list that has not one entry per client."""
    check_count("num_clients", num_clients)
    if np.ndim(value) and np.size(value) != num_clients:
        raise ValueError(
            f"{name} must have one entry per client; got {np.size(value)} "
            f"for {num_clients} clients."
        )


def check_devices(name: str, is_ever_there: Any, num_clients: int, drop_absent: bool) -> None:
    """Raise if a trace has too few devices, or clients that are never there.

    Args:
        name: of the trace, in messages.
        is_ever_there: by device.
        num_clients: N; they are the first devices.
        drop_absent: devices that are never there are left out.
    """
    devices = np.sum(is_ever_there) if drop_absent else len(is_ever_there)
    if devices < num_clients:
        what = "devices that are ever there" if drop_absent else "devices"
        raise ValueError(
            f"{name} must have at least one device per client; got {devices} {what} for "
            f"{num_clients} clients."
        )
    absent = np.flatnonzero(~is_ever_there[:num_clients])
    if len(absent) and not drop_absent:
        names = ", ".join(map(str, absent[:8])) + ", ..." * (len(absent) > 8)
        raise ValueError(
            f"{len(absent)} of the first {num_clients} devices of {name} are never there: "
            f"{names}. Use drop_absent = true to take the next ones instead."
        )


def check_size(num_clients: int, m: int) -> None:
    """Raise if m clients cannot be drawn from num_clients."""
    check_count("num_clients", num_clients)
    if m > num_clients:
        raise ValueError(f"m must not exceed the number of clients; got m = {m} of {num_clients}.")

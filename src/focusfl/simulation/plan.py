"""The plan of a compiled program: who takes part, who has which slot, in which branch.

Rounds are drawn as a run comes to them (`Participants`), and laid out in chunks (`Layout`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Array, Int

from focusfl.core.tree import Tree, size
from focusfl.participation import Participation, schedule
from focusfl.participation.model import BLOCK, Ids
from focusfl.simulation.callbacks import BudgetSpent
from focusfl.simulation.spec import OnEmpty

if TYPE_CHECKING:
    from focusfl.simulation.round import Config

AHEAD = 1 << 22  # participants drawn before the run, for its slots to be chosen by
LARGE = 10_000  # numbers in a model, from which on rounds take milliseconds
GRAINS = 8  # a chunk is a multiple of its longest over this: few lengths to compile
TABLE = 1 << 30  # bytes of memory brought to the device for one chunk
PLANNED = 1 << 24  # slots laid out in one chunk, at most
SPARE = 1 << 23  # numbers computed with in the time that it takes to compile gathering
WASTE = 0.15  # share of slots that may stay empty before another branch is compiled
NOBODY = 0  # the branch before those with slots
PADDING = -1  # the round number of a row that is no round

PerRound = Int[Array | np.ndarray, "*rounds"]


class Participants:
    """Those of the rounds to come, seed by seed; how many there were in those drawn.

    A run with few participants in all is drawn before it begins; a longer one in part,
    and from then on as far as it is asked for.
    """

    def __init__(
        self, participation: Participation, num_clients: int, rounds: int, seeds: Sequence[int]
    ):
        self._streams = [schedule(participation, num_clients, rounds, seed) for seed in seeds]
        self._ready: list[deque[Ids]] = [deque() for _ in seeds]
        self._active: list[list[int]] = [[] for _ in seeds]
        self._rounds = rounds
        total = 0
        while not self.all and total < AHEAD:
            total += self._draw(BLOCK)
        # as far as the run is known before it begins
        self.ahead: list[list[Ids]] = [list(ready) for ready in self._ready]

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
        return [[ready.popleft() for _ in range(min(count, len(ready)))] for ready in self._ready]

    def _draw(self, count: int) -> int:
        """Draw so many more rounds; say how many take part in them."""
        for stream, ready, active in zip(self._streams, self._ready, self._active, strict=True):
            drawn = list(islice(stream, count))
            ready += drawn
            active += map(len, drawn)
        return sum(sum(active[-count:]) for active in self._active)


class ChunkPolicy(NamedTuple):
    """How rounds are best cut up: by what a slot costs beside a compilation."""

    chunk: int  # rounds per call of the compiled program, at most
    worth: int  # empty slots that cost about as much as compiling another branch
    most: int  # branches there may be
    few: int = 0  # empty slots that cost less than compiling who has which


QUICK = ChunkPolicy(256, 50_000, 6)


def chunk_policy(x: Tree, on_cpu: bool, slot: int) -> ChunkPolicy:
    """What was measured to be best for models of this size, and slots that compute with
    so many numbers."""
    if not is_large(x):
        return QUICK._replace(few=SPARE // max(1, slot))
    # On a CPU clients with large models take turns, and an empty slot costs nothing.
    return ChunkPolicy(8, 0, 1) if on_cpu else ChunkPolicy(256, 5_000, 4)


def is_large(x: Tree) -> bool:
    """Whether a round of this model costs more than starting it."""
    return size(x) > LARGE


class Plan(NamedTuple):
    """The rounds of one chunk, or one of them."""

    branch: PerRound
    round: PerRound
    active: Int[Array | np.ndarray, "*seeds_and_rounds"]  # |S_r|
    ids: Int[
        Array | np.ndarray, "*seeds_and_rounds slots"
    ]  # the client in each slot, by its row on its device; those past the last row: empty
    places: Any = None  # where each of ids has its memory; None: at its id
    budget_spent: Any = None  # whether all vectors are sent by then; None: no budget
    weight: Any = None  # of the participants together; None: each counts as one


def cohort_sizes(
    active: Int[np.ndarray, " rounds"], num_clients: int, pace: ChunkPolicy = QUICK
) -> tuple[int, ...]:
    """Choose the few numbers of slots that waste little on rounds of these sizes.

    The fewest with at most WASTE of all slots empty, or fewer if the run is so short
    that a branch would not pay; among equally few, the best.
    """
    sizes, often = np.unique(active[active > 0], return_counts=True)
    if not len(sizes):
        return (1,)
    work = int((sizes * often).sum())
    below = np.concatenate([[0], np.cumsum(often)])
    # For every j: the slots that rounds of up to sizes[j] take, and their branches.
    cost = sizes * below[1:]
    chosen: list[tuple[int, ...]] = [(int(size),) for size in sizes]
    while len(chosen[-1]) < pace.most:
        if cost[-1] - work <= max(WASTE * cost[-1], pace.worth):
            break
        more, best = cost.copy(), list(chosen)
        for j in range(1, len(sizes)):
            options = cost[:j] + sizes[j] * (below[j + 1] - below[1 : j + 1])
            i = int(options.argmin())
            if options[i] < more[j]:
                more[j], best[j] = options[i], (*chosen[i], int(sizes[j]))
        cost, chosen = more, best
    *smaller, largest = chosen[-1]
    # A slot for everybody needs no gathering, and is what full participation runs on:
    # short runs of little work share that program, whoever takes part.
    few = num_clients * len(active) - work <= pace.few
    everybody = not smaller and (few or largest > 2 / 3 * num_clients)
    return (*smaller, num_clients if everybody else largest)


def chunk_rows(rounds: int, longest: int = QUICK.chunk, slots: int = 1, row_bytes: int = 0) -> int:
    """Cut a run into as few chunks as can be, of one length; give that length.

    Those of rounds with many slots are shorter, and so are those whose participants'
    rows are brought to the device.
    """
    most = min(PLANNED, TABLE // row_bytes if row_bytes else PLANNED) // slots
    longest = max(GRAINS, min(longest, most))
    chunks, grain = -(-rounds // longest), longest // GRAINS
    return -(-rounds // (chunks * grain)) * grain


def ensure_capacity(
    slots: tuple[int, ...], drawn: Sequence[Sequence[Ids]], num_clients: int
) -> tuple[int, ...]:
    """Add a number of slots if these are too few for rounds that were not looked at."""
    largest = max(len(ids) for rounds in drawn for ids in rounds)
    if largest <= slots[-1]:
        return slots
    return (*slots, min(num_clients, largest + largest // 8))


def slot_ids(
    schedules: Sequence[Sequence[Ids]], rows: int, slots: tuple[int, ...], num_clients: int
) -> tuple[np.ndarray, np.ndarray]:
    """Give who has which slot, as (schedules, rows, slots), and the branch of every row.

    Schedules that run side by side share the branch, which is that of the largest. Rows after
    their last round are nobody's; so are slots with ids of N and above.
    """
    sizes = np.zeros((len(schedules), rows), int)
    sizes[:, : len(schedules[0])] = [[len(ids) for ids in rounds] for rounds in schedules]
    branch = NOBODY + 1 + np.searchsorted(slots, sizes.max(0))
    # With a slot for everybody each has their own, and nothing need be gathered.
    is_full = np.take([0, *slots], branch) == num_clients
    table = np.tile(num_clients + np.arange(slots[-1]), (len(schedules), rows, 1))
    for slot_of, counts, rounds in zip(table, sizes, schedules, strict=True):
        ids = np.concatenate([np.zeros(0, int), *rounds])
        row = np.repeat(np.arange(rows), counts)
        place = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
        slot_of[row, np.where(is_full[row], ids, place)] = ids
    return table, branch


class Layout(NamedTuple):
    """How rounds become chunks of so many rows."""

    config: "Config"
    participants: Participants
    rounds: int
    rows: int
    on_empty: OnEmpty
    budget_spent: BudgetSpent | None  # by participants so far; None: no budget
    weights: np.ndarray | None = None  # of clients; None: all alike

    def after(self, done: int) -> Iterator[tuple["Config", Plan]]:
        """Yield the chunks after so many rounds, with what each is compiled for."""
        slots, devices = self.config.slots, self.config.devices
        participations = np.zeros(1, int)  # before the chunk, by schedule
        for start in range(0, self.rounds, self.rows):
            schedules = self.participants.take(self.rows)
            slots = ensure_capacity(slots, devices.shard(schedules), devices.clients_per_device)
            if start >= done:
                config = self.config._replace(slots=slots)
                yield config, self._lay_out(config, schedules, start, participations)
            participations = participations + [sum(map(len, rounds)) for rounds in schedules]

    def of_nobody(self, schedules: int) -> Plan:
        """Lay out a chunk of nobody, in the shape of any other."""
        nobody = [[np.zeros(0, int)] * self.rows] * schedules
        return self._lay_out(self.config, nobody, 0, np.zeros(1, int))

    def _lay_out(
        self,
        config: "Config",
        schedules: Sequence[Sequence[Ids]],
        start: int,
        participations: np.ndarray,
    ) -> Plan:
        """Lay out one chunk that begins with round `start`.

        With several schedules all but `branch` and `round` have a first axis for them.
        """
        devices, count = config.devices, len(schedules[0])
        ids, branch = slot_ids(
            devices.shard(schedules), self.rows, config.slots, devices.clients_per_device
        )
        active = np.zeros((len(schedules), self.rows), int)
        active[:, :count] = [[len(ids) for ids in rounds] for rounds in schedules]
        number = np.arange(start, start + self.rows)
        if self.on_empty == "skip":
            branch[active.max(0) == 0] = NOBODY
        branch[count:], number[count:] = NOBODY, PADDING
        weight = spent = None
        if self.weights is not None:
            weight = np.stack([weight_of(own, self.weights, self.rows) for own in schedules])
        if self.budget_spent is not None:
            spent = self.budget_spent(participations[:, None] + np.cumsum(active, 1))
        by_schedule: Any = (active.astype(np.int32), devices.merge(ids).astype(np.int32))
        by_schedule += (None, spent, weight)
        if len(schedules) == 1:
            by_schedule = [None if a is None else a[0] for a in by_schedule]
        return Plan(branch.astype(np.int32), number.astype(np.int32), *by_schedule)


def weight_of(drawn: Sequence[Ids], weights: np.ndarray, rows: int) -> np.ndarray:
    """What the participants of every round weigh together; 0 in rows that pad."""
    who = np.concatenate([np.zeros(0, int), *drawn])
    row = np.repeat(np.arange(len(drawn)), [len(ids) for ids in drawn])
    return np.bincount(row, weights[who], rows)

"""The chunks of a run, laid out as their rounds are drawn."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from focusfl.engines.simulator.cohort import Program
from focusfl.engines.simulator.layout import Plan, ensure_capacity, plan
from focusfl.engines.simulator.schedule import ScheduleBuffer
from focusfl.engines.spec import OnEmpty
from focusfl.participation.model import Ids

# By how many participants there were so far, in all: whether that is enough.
Enough = Callable[[np.ndarray], np.ndarray]


class Layout(NamedTuple):
    """How rounds become chunks of so many rows."""

    program: Program
    drawn: ScheduleBuffer
    rounds: int
    rows: int
    on_empty: OnEmpty
    enough: Enough | None  # None: however many

    def after(self, done: int) -> Iterator[tuple[Program, Plan]]:
        """Yield the chunks after so many rounds, each with the program it needs."""
        slots, devices = self.program.slots, self.program.devices
        turns: int | np.ndarray = 0
        for start in range(0, self.rounds, self.rows):
            now = self.drawn.take(self.rows)
            slots = ensure_capacity(
                slots, devices.shard(now), devices.clients_per_device
            )
            if start >= done:
                program = self.program._replace(slots=slots)
                yield program, self._laid_out(program, now, start, turns)
            turns = turns + np.array([sum(map(len, own)) for own in now])

    def nobodys(self, schedules: int) -> Plan:
        """Lay out a chunk of nobody, in the shape of any other."""
        nobody = [[np.zeros(0, int)] * self.rows] * schedules
        return self._laid_out(self.program, nobody, 0, 0)

    def _laid_out(
        self,
        program: Program,
        now: Sequence[Sequence[Ids]],
        start: int,
        turns: int | np.ndarray,
    ) -> Plan:
        devices = program.devices
        dealt = devices.shard(now)
        laid_out = devices.merge(
            plan(
                dealt,
                start,
                self.rows,
                program.slots,
                devices.clients_per_device,
                self.on_empty,
            )
        )
        if self.enough is None:
            return laid_out
        counts = np.zeros((len(now), self.rows), int)
        counts[:, : len(now[0])] = [[len(ids) for ids in own] for own in now]
        spent = self.enough(np.reshape(turns, (-1, 1)) + np.cumsum(counts, 1))
        return laid_out._replace(spent=spent if len(now) > 1 else spent[0])

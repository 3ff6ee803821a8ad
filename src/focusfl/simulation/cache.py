"""The memory of one chunk's participants, brought to the device and taken back.

While a chunk runs, a thread writes the rows of the one before back to the store and
reads those of the one after. Who takes part in two chunks in a row is handed on from
one to the other: the thread has read that row too early.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from focusfl.core.tree import Tree
from focusfl.simulation.checkpoint import CheckpointFile, Facts
from focusfl.simulation.cohort import clients_in
from focusfl.simulation.compiled import Log, State
from focusfl.simulation.layout import Plan
from focusfl.simulation.rows import Ids, Store
from focusfl.simulation.start import (
    Start,
    begin_in_parts,
    evaluated,
    in_model_coordinates,
    initial_memory,
    parts,
    to_model_coordinates,
)

GRAINS = 8  # a table has a power of two of rows, or some eighths between two


class ClientCache:
    """Rows of a store on the device. Use it as a context: it has a thread."""

    def __init__(self, on_disk: bool, folder: str | Path | None, kept: CheckpointFile):
        self._on_disk, self._kept = on_disk, kept
        self._folder = folder if kept.folder is None else kept.folder
        self._size = 0  # rows of the largest table so far
        self._out: Ids | None = None  # whose rows the device has
        self._coming: Future | None = None  # the table of the chunk after
        self._writing: Future | None = None

    def __enter__(self) -> "ClientCache":
        self._thread = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_: Any) -> None:
        self._thread.shutdown()

    def begin(self, start: Start, key: Any, turns: int) -> tuple[State, Log]:
        """Give the state before round 0, with nobody's rows on the device."""
        static, x0, data, eval_data = start
        anybody = jax.tree.map(lambda a: a[:1], data)
        memory = initial_memory(static, x0, anybody, key)
        row = jax.tree.map(lambda a: np.asarray(a[0]), memory[1:])
        many = clients_in(data)
        all_alike = in_model_coordinates(static.objective) and not static.algorithm.starts_warm
        self.store = Store(
            row, many, self._on_disk, self._folder, self._kept.folder is not None,
            self._kept.exists(), min(many, turns) if all_alike else many,
        )  # fmt: skip
        if all_alike or self._kept.exists():
            return evaluated(static, memory, eval_data)

        def write(ids, rows):
            there = ids < many
            rows = jax.tree.map(lambda a: np.asarray(a)[there], rows)
            self.store.write(ids[there], rows)

        def read(ids):
            return self.store.read(ids[ids < many], len(ids))

        server = begin_in_parts(static, x0, data, key, memory.server, write, read)
        return evaluated(static, memory._replace(server=server), eval_data)

    def like(self, state: State, plan: Plan) -> tuple[State, Plan]:
        """What a chunk is compiled for, in shape."""
        slots = plan.ids.shape[-1]
        clients, steps = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((slots, *a.shape[1:]), a.dtype),
            (state.clients, state.steps),
        )
        state = state._replace(clients=clients, steps=steps)
        return state, plan._replace(places=plan.ids)

    def restore(self, state: State, log: Log, facts: Callable[[], Facts]) -> tuple[State, Log]:
        """Go on from the checkpoint, if there is one."""
        kept, log = self._kept.restore(self._without_rows(state), log, facts)
        self.store.keep(kept.steps)
        return kept._replace(clients=state.clients, steps=state.steps), log

    def keep(self, state: State, log: Log) -> None:
        """Make all that was done so far part of the checkpoint, if there is one."""
        self._finish(state)
        if self._kept.folder is not None:
            self.store.flush()
            self._kept.keep(self._without_rows(state), log)
            self._kept.write()
            self.store.keep(self.store.where())

    def load(self, state: State, plan: Plan) -> tuple[State, Plan]:
        """Put the rows of a chunk's participants on the device, in place of others."""
        many, ids = len(self.store.at), self._who(plan)
        rows = (self._coming or self._read(plan)).result()
        self._write_back(state, ids, rows)
        self._out, self._coming = ids, None
        clients, steps = jax.device_put(rows)
        nobody = len(steps) + plan.ids - many
        places = np.where(plan.ids < many, np.searchsorted(ids, plan.ids), nobody)
        state = state._replace(clients=clients, steps=steps)
        return state, plan._replace(places=places.astype(np.int32))

    def prefetch(self, plan: Plan) -> None:
        """Read the rows of the chunk after this one, when those before are written."""
        self._coming = self._read(plan)

    def export(self, start: Start, clients: Any) -> Tree:
        """Everybody's memory in the coordinates of the model, where it is."""
        del clients  # those of the last chunk alone
        static, x0, data, _ = start
        if not in_model_coordinates(static.objective):
            for ids in parts(x0, clients_in(data)):
                ids = ids[ids < clients_in(data)]
                clients, steps = self.store.read(ids)
                clients = jax.device_get(to_model_coordinates(static.objective, clients, data, ids))
                self.store.write(ids, (clients, steps))
        clients, _ = self.store.rows()
        return clients

    def _without_rows(self, state: State) -> State:
        where: Any = self.store.where()
        return state._replace(clients=None, steps=where)

    def _finish(self, state: State) -> None:
        """Write everything back."""
        self._write_back(state)
        self._out = self._coming = None
        if self._writing is not None:
            self._writing.result()

    def _read(self, plan: Plan) -> Future:
        ids = self._who(plan)
        self._size = max(self._size, _enough(max(len(ids), plan.ids.shape[-1])))
        return self._thread.submit(self.store.read, ids, self._size)

    def _write_back(self, state: State, ids: Ids | None = None, rows: Tree = None) -> None:
        """Send rows from the device to the store; hand those of `ids` on to `rows`."""
        if (out := self._out) is None:
            return
        done = jax.tree.map(np.asarray, (state.clients, state.steps))  # waits
        if ids is not None:
            _, now, then = np.intersect1d(ids, out, assume_unique=True, return_indices=True)
            leaves = jax.tree.leaves(rows), jax.tree.leaves(done)
            for mine, theirs in zip(*leaves, strict=True):
                mine[now] = theirs[then]
        if self._writing is not None:
            self._writing.result()  # raises what went wrong there
        done = jax.tree.map(lambda a: a[: len(out)], done)
        self._writing = self._thread.submit(self.store.write, out, done)

    def _who(self, plan: Plan) -> Ids:
        return np.unique(plan.ids[plan.ids < len(self.store.at)])


def _enough(rows: int) -> int:
    """Choose one of few sizes, as each of them is compiled for."""
    grain = max(1, (1 << (rows - 1).bit_length()) // (2 * GRAINS))
    return -(-rows // grain) * grain

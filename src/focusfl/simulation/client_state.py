"""Where clients' state is during a run: two stores behind one interface.

`OnDevice` has all of it on one device, or spread over several. `Cached` has it off the
device (rows.py), in the memory of the host or on disk, and brings the rows of a chunk's
participants to the device. While a chunk runs, a thread writes the rows of the chunk
before back, and reads those of the chunk after. A client that takes part in two chunks
in a row is handed on from one to the other, as the thread has read its row too early.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from focusfl.core.tree import Tree
from focusfl.simulation.checkpoint import CheckpointFile, Facts
from focusfl.simulation.plan import Plan
from focusfl.simulation.round import Carry, ClientData, Config, num_rows
from focusfl.simulation.rows import Ids, Store
from focusfl.simulation.scan import Log, carry_on_device, initial_carry, warm_up
from focusfl.simulation.spec import ClientState, Options

GRAINS = 8  # a table has a power of two of rows, or some eighths between two


class OnDevice:
    """All clients' state on the device, or sharded over several. Use it as a context."""

    def __init__(self, config: Config, checkpoint: CheckpointFile):
        self.config, self.checkpoint = config, checkpoint

    def __enter__(self) -> "OnDevice":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def begin(self, x0: Tree, clients: ClientData, key: Any, participations: int) -> Carry:
        """Give the state before round 0, not yet evaluated.

        `participations` bounds how many participants there will be, over all rounds.
        """
        del participations  # there is room for everybody
        return carry_on_device(self.config, x0, clients, key)

    def like(self, carry: Carry, plan: Plan) -> tuple[Carry, Plan]:
        """What a chunk is compiled for, in shape."""
        return carry, plan

    def restore(self, carry: Carry, log: Log, facts: Callable[[], Facts]) -> tuple[Carry, Log]:
        """Go on from the checkpoint, if there is one."""
        return self.checkpoint.restore(carry, log, facts)

    def load(self, carry: Carry, plan: Plan) -> tuple[Carry, Plan]:
        """Have the state of a chunk's participants on the device."""
        return carry, plan

    def prefetch(self, plan: Plan) -> None:
        """Get the state of the next chunk's participants ready."""

    def save(self, carry: Carry, log: Log) -> None:
        """Write all that was done so far to the checkpoint, if there is one."""
        self.checkpoint.write(carry, log)

    def export(self, states: Any) -> Tree:
        """Give all clients' states after the last round."""
        return jax.tree.map(self.config.devices.fetch, states)


class Cached(OnDevice):
    """Rows of a store on the device, those of a chunk's participants alone."""

    def __init__(self, config: Config, checkpoint: CheckpointFile, on_disk: bool, options: Options):
        super().__init__(config, checkpoint)
        self._on_disk = on_disk
        self._folder = options.state_folder if checkpoint.folder is None else checkpoint.folder
        self._size = 0  # rows of the largest table so far
        self._out: Ids | None = None  # whose rows the device has
        self._coming: Future | None = None  # the table of the next chunk
        self._writing: Future | None = None

    def __enter__(self) -> "Cached":
        self._thread = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_: Any) -> None:
        self._thread.shutdown()

    def begin(self, x0: Tree, clients: ClientData, key: Any, participations: int) -> Carry:
        config, many = self.config, num_rows(clients)
        one = jax.tree.map(lambda a: a[:1], clients)
        carry = initial_carry(config, x0, one)
        row = jax.tree.map(lambda a: np.asarray(a[0]), (carry.clients, carry.gradients_done))
        warm, resumed = config.algorithm.starts_warm, self.checkpoint.exists()
        self.store = Store(
            row, many, self._on_disk, self._folder, self.checkpoint.folder is not None,
            resumed, many if warm else min(many, participations),
        )  # fmt: skip
        if not warm or resumed:
            return carry

        def write(ids, rows):
            present = ids < many
            self.store.write(ids[present], jax.tree.map(lambda a: np.asarray(a)[present], rows))

        def read(ids):
            return self.store.read(ids[ids < many], len(ids))

        return carry._replace(server=warm_up(config, x0, clients, key, write, read))

    def like(self, carry: Carry, plan: Plan) -> tuple[Carry, Plan]:
        slots = plan.ids.shape[-1]
        clients, done = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((slots, *a.shape[1:]), a.dtype),
            (carry.clients, carry.gradients_done),
        )
        carry = carry._replace(clients=clients, gradients_done=done)
        return carry, plan._replace(places=plan.ids)

    def restore(self, carry: Carry, log: Log, facts: Callable[[], Facts]) -> tuple[Carry, Log]:
        kept_carry, log = self.checkpoint.restore(self._without_rows(carry), log, facts)
        self.store.set_index(kept_carry.gradients_done)
        return kept_carry._replace(clients=carry.clients, gradients_done=carry.gradients_done), log

    def save(self, carry: Carry, log: Log) -> None:
        self._write_back(carry)
        self._out = self._coming = None
        if self._writing is not None:
            self._writing.result()
        if self.checkpoint.folder is not None:
            self.store.flush()
            self.checkpoint.write(self._without_rows(carry), log)
            self.store.set_index(self.store.index())

    def load(self, carry: Carry, plan: Plan) -> tuple[Carry, Plan]:
        many, ids = len(self.store.places), self._participants(plan)
        rows = (self._coming or self._read(plan)).result()
        self._write_back(carry, ids, rows)
        self._out, self._coming = ids, None
        clients, done = jax.device_put(rows)
        nobody = len(done) + plan.ids - many
        places = np.where(plan.ids < many, np.searchsorted(ids, plan.ids), nobody)
        carry = carry._replace(clients=clients, gradients_done=done)
        return carry, plan._replace(places=places.astype(np.int32))

    def prefetch(self, plan: Plan) -> None:
        self._coming = self._read(plan)

    def export(self, states: Any) -> Tree:
        del states  # those of the last chunk alone
        return self.store.rows()[0]

    def _without_rows(self, carry: Carry) -> Carry:
        # In a checkpoint, where the rows are takes the place of the rows.
        where: Any = self.store.index()
        return carry._replace(clients=None, gradients_done=where)

    def _read(self, plan: Plan) -> Future:
        ids = self._participants(plan)
        self._size = max(self._size, _table_size(max(len(ids), plan.ids.shape[-1])))
        return self._thread.submit(self.store.read, ids, self._size)

    def _write_back(self, carry: Carry, ids: Ids | None = None, rows: Tree = None) -> None:
        """Send rows from the device to the store; hand those of `ids` on to `rows`."""
        if (out := self._out) is None:
            return
        # Waits for the chunk that is running.
        done = jax.tree.map(np.asarray, (carry.clients, carry.gradients_done))
        if ids is not None:
            _, now, then = np.intersect1d(ids, out, assume_unique=True, return_indices=True)
            for new, old in zip(jax.tree.leaves(rows), jax.tree.leaves(done), strict=True):
                new[now] = old[then]
        if self._writing is not None:
            self._writing.result()  # raises what went wrong there
        done = jax.tree.map(lambda a: a[: len(out)], done)
        self._writing = self._thread.submit(self.store.write, out, done)

    def _participants(self, plan: Plan) -> Ids:
        return np.unique(plan.ids[plan.ids < len(self.store.places)])


def _table_size(rows: int) -> int:
    """Choose one of few sizes, as each of them is compiled for."""
    grain = max(1, (1 << (rows - 1).bit_length()) // (2 * GRAINS))
    return -(-rows // grain) * grain


def store_for(
    place: ClientState, config: Config, options: Options, checkpoint: CheckpointFile
) -> OnDevice:
    """Make the store for clients' state that is to be there."""
    if place == "device":
        return OnDevice(config, checkpoint)
    return Cached(config, checkpoint, place == "disk", options)

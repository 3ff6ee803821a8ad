"""Which devices a run is on, and whether it fits there.

Clients are dealt to several devices as cards are: client i lives on device i mod n.

A device has the memory and the data of its own clients, in row i // n, and runs those
of them who take part. The server is on every device. What crosses between devices is,
once in a round, the sum of what participants push.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from focusfl.core.tree import Tree
from focusfl.participation.model import Ids
from focusfl.simulation.spec import ClientState, Options

OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")
AXIS = "clients"
REPLICATED, SHARDED = P(), P(AXIS)  # on every device; cut along the first axis


@dataclass(frozen=True)
class Devices:
    """Which device holds which clients. Immutable and hashable, as a part of `Config`.

    On one device all methods return what they are given.
    """

    num_clients: int
    mesh: Mesh | None = None  # with none, everybody is on the one default device

    @property
    def count(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    @property
    def clients_per_device(self) -> int:
        """Rows on each device; the last of them may be nobody's."""
        return -(-self.num_clients // self.count)

    def each(self, run: Callable, takes: Any, gives: Any) -> Callable:
        """Make a function run on every device, on its part of what it takes."""
        if self.mesh is None:
            return run
        # Checked, a gradient by what all devices share would be summed over them.
        return jax.shard_map(run, mesh=self.mesh, in_specs=takes, out_specs=gives, check_vma=False)

    def client_ids(self, rows: Int[Array, " slots"]) -> Int[Array, " slots"]:
        """Who has these rows of the device this runs on; N and above: nobody."""
        if self.mesh is None:
            return rows
        return rows * self.count + jax.lax.axis_index(AXIS)

    def total(self, part: Tree) -> Tree:
        """Sum over devices, in one message."""
        if self.mesh is None:
            return part
        flat, back = ravel_pytree(part)
        return back(jax.lax.psum(flat, AXIS))

    def shard(self, schedules: Sequence[Sequence[Ids]]) -> Sequence[Sequence[Ids]]:
        """Give the rows of every device's participants, for all schedules in turn."""
        if self.mesh is None:
            return schedules
        return [
            [ids[ids % self.count == device] // self.count for ids in rounds]
            for rounds in schedules
            for device in range(self.count)
        ]

    def merge(self, ids: np.ndarray) -> np.ndarray:
        """Lay the slots of all devices side by side, (schedules, rows, slots), schedule by
        schedule."""
        rows, slots = ids.shape[1:]
        by_device = ids.reshape(-1, self.count, rows, slots).swapaxes(1, 2)
        return by_device.reshape(-1, rows, self.count * slots)

    def put(self, data: Tree, eval_data: Tree) -> tuple[Tree, Tree]:
        """Bring clients' data to where they live, what all look at to everywhere."""
        if self.mesh is None:
            return jax.device_put((data, eval_data))
        sharded, replicated = (NamedSharding(self.mesh, cut) for cut in (SHARDED, REPLICATED))

        def deal(a):
            a = np.asarray(a)
            shape = self.count * self.clients_per_device, *a.shape[1:]
            return jax.make_array_from_callback(shape, sharded, partial(self._hand, a))

        def repeat(a):
            a = np.asarray(a)
            return jax.make_array_from_callback(a.shape, replicated, lambda _: a)

        return jax.tree.map(deal, data), jax.tree.map(repeat, eval_data)

    def fetch(self, rows: Array) -> np.ndarray:
        """Collect everybody's rows, client by client, in every process."""
        if self.mesh is None:
            return np.asarray(rows)
        if not rows.is_fully_addressable:
            from jax.experimental.multihost_utils import process_allgather

            rows = process_allgather(rows, tiled=True)
        hands = np.asarray(rows).reshape(self.count, self.clients_per_device, *rows.shape[1:])
        return hands.swapaxes(0, 1).reshape(rows.shape)[: self.num_clients]

    def _hand(self, a: np.ndarray, index: tuple[slice, ...]) -> np.ndarray:
        """The rows of one device: of its clients, and any other to fill it up."""
        rows = a[(index[0].start or 0) // self.clients_per_device :: self.count]
        return np.concatenate([rows, a[: self.clients_per_device - len(rows)]])


def devices_for(options: Options, num_clients: int) -> Devices:
    """Choose the devices of a run; raise if it cannot have those asked for."""
    count, alone = options.devices, jax.process_count() == 1
    if count is None or count == 1 and alone:
        return Devices(num_clients)
    there = jax.devices()
    if count > len(there):
        raise ValueError(
            f"devices must be at most {len(there)}, as many as there are; got {count}. "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count} makes so many "
            "of a CPU."
        )
    if count < len(there) and not alone:
        raise ValueError(f"devices must be {len(there)}, all that the processes have; got {count}.")
    if options.client_state not in ("auto", "device"):
        raise ValueError(
            'client_state must be "device" on several devices; '
            f"got {options.client_state!r} and devices = {count}."
        )
    if options.checkpoint is not None and not alone:
        raise ValueError("a run of several processes cannot keep a checkpoint; leave it out.")
    return Devices(num_clients, Mesh(np.array(there[:count]), (AXIS,)))


class DoesNotFit(ValueError):
    """What was asked for is more than the device can hold at once."""


def available() -> int:
    """Bytes that the device has for us, or the whole machine where it has no own."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    return _machine()


def _machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Needs(NamedTuple):
    """Bytes that a run takes."""

    clients: int  # all that clients remember
    others: int  # data, model and what is evaluated on
    data: int
    num_clients: int
    runs: int  # side by side

    @property
    def row(self) -> int:
        """What one client remembers."""
        return -(-self.clients // self.num_clients)


def needs(
    client_state: Tree, everywhere: Tree, data: Tree, num_clients: int, runs: int, devices: int = 1
) -> Needs:
    """Count the bytes of arrays of these shapes: the clients' state of one run, what every
    device has a copy of, and the data that devices share.

    Devices that are the CPU of one machine share its memory.
    """
    state = runs * size(client_state)
    on_cpu = jax.default_backend() == "cpu"
    shares = min(devices, jax.process_count()) if on_cpu else devices
    shared = size(data) // shares
    others = shared + devices // shares * size(everywhere)
    return Needs(state // shares, others, shared, num_clients, runs)


def choose_client_state(wanted: ClientState, needs: Needs, has_checkpoint: bool) -> ClientState:
    """Decide where clients' memory is kept; raise if it cannot be there."""
    if wanted == "host" and has_checkpoint:
        raise ValueError(
            "a checkpoint needs clients' memory on the device or on disk; got "
            'client_state="host". Use "disk".'
        )
    if wanted in ("host", "disk") and needs.runs > 1:
        raise DoesNotFit(
            "off the device clients' memory is that of one run at a time; got "
            f"client_state={wanted!r} for {needs.runs} runs side by side."
        )
    room = available()
    fits = needs.clients + needs.others <= room
    if fits and wanted in ("auto", "device"):
        return "device"
    if needs.others > room or wanted == "device" or needs.runs > 1:
        each = (needs.clients + needs.data) / needs.num_clients
        hint = ' With client_state="disk" only data and model need to.'
        raise DoesNotFit(
            f"{needs.num_clients:,} clients do not fit: what they remember takes "
            f"{_gib(needs.clients)}, data and model {_gib(needs.others)}, and the "
            f"device has {_gib(room)}. About {int(room / each):,} clients would fit."
            + (hint if needs.others <= room else "")
        )
    if wanted != "auto":
        return wanted
    on_cpu = jax.default_backend() == "cpu"  # whose memory is the host's
    free = 0 if on_cpu or has_checkpoint else _machine() - needs.others
    chosen: ClientState = "host" if needs.clients <= free else "disk"
    print(
        f"client_state={chosen!r}: what {needs.num_clients:,} clients remember takes "
        f"{_gib(needs.clients)}, and the device has {_gib(room)}.",
        file=sys.stderr,
    )
    return chosen


@contextlib.contextmanager
def hint_on_oom(slots: int) -> Iterator[None]:
    """Say what to do when a round is too large for the device."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        raise DoesNotFit(
            f"out of memory: {slots} participants side by side are too much for the "
            f"{_gib(available())} of the device. Smaller batches, fewer participants "
            "in a round or a compute_dtype of bfloat16 need less."
        ) from None


def size(tree: Tree) -> int:
    """Bytes of all leaves, or of what they stand for."""
    return sum(_bytes(leaf) for leaf in jax.tree.leaves(tree))


def _bytes(leaf: Any) -> int:
    return int(np.prod(leaf.shape)) * leaf.dtype.itemsize


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"

"""Whether a run fits on the device, said before it starts and when it does not."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from focusfl.core.tree import Tree
from focusfl.simulation.cohort import Memory
from focusfl.simulation.spec import ClientState

OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")


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


def needs(memory: Memory, everywhere: Tree, data: Tree, runs: int, devices: int = 1) -> Needs:
    """Count what arrays of these shapes take: the memory of one run, what every device
    has a copy of, and what devices share.

    Devices that are the CPU of one machine share its memory.
    """
    theirs = runs * size((memory.clients, memory.steps))
    on_cpu = jax.default_backend() == "cpu"
    shares = min(devices, jax.process_count()) if on_cpu else devices
    own = size(data) // shares
    others = own + devices // shares * size(everywhere)
    return Needs(theirs // shares, others, own, len(memory.steps), runs)


def choose(asked: ClientState, needs: Needs, kept: bool) -> ClientState:
    """Decide where clients' memory is kept; raise if it cannot be there."""
    if asked == "host" and kept:
        raise ValueError(
            "a checkpoint needs clients' memory on the device or on disk; got "
            'client_state="host". Use "disk".'
        )
    if asked in ("host", "disk") and needs.runs > 1:
        raise DoesNotFit(
            "off the device clients' memory is that of one run at a time; got "
            f"client_state={asked!r} for {needs.runs} runs side by side."
        )
    room = available()
    fits = needs.clients + needs.others <= room
    if fits and asked in ("auto", "device"):
        return "device"
    if needs.others > room or asked == "device" or needs.runs > 1:
        each = (needs.clients + needs.data) / needs.num_clients
        hint = ' With client_state="disk" only data and model need to.'
        raise DoesNotFit(
            f"{needs.num_clients:,} clients do not fit: what they remember takes "
            f"{_gib(needs.clients)}, data and model {_gib(needs.others)}, and the "
            f"device has {_gib(room)}. About {int(room / each):,} clients would fit."
            + (hint if needs.others <= room else "")
        )
    if asked != "auto":
        return asked
    on_cpu = jax.default_backend() == "cpu"  # whose memory is the host's
    free = 0 if on_cpu or kept else _machine() - needs.others
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

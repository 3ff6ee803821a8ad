"""Whether a run fits on the device, said before it starts and when it does not."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from focusfl.tree import Tree

OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")


class DoesNotFit(ValueError):
    """What was asked for is more than the device can hold at once."""


def available() -> int:
    """Bytes that the device has for us, or the whole machine where it has no own."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check(
    begin: Callable, x0: Tree, data: Tree, held: Tree, key: Any, runs: int
) -> None:
    """Raise if everybody's memory and the data are larger than the device."""
    state, _ = jax.eval_shape(begin, x0, data, held, key)
    num_clients = len(state.steps)
    memory, others = runs * size(state.clients), size((x0, data, held))
    room = available()
    if memory + others <= room:
        return
    each = (memory + size(data)) / num_clients
    raise DoesNotFit(
        f"{num_clients:,} clients do not fit: what they remember takes {_gib(memory)}, "
        f"data and model {_gib(others)}, and the device has {_gib(room)}. About "
        f"{int(room / each):,} clients would fit."
    )


@contextlib.contextmanager
def explained(slots: int) -> Iterator[None]:
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

"""What a site remembers, and how that moves on: pure functions, on either side."""

from typing import Any, NamedTuple

import numpy as np

from focusfl import tree
from focusfl.core import Algorithm, Client, Message, Round, settles
from focusfl.engines.client_round import client_round
from focusfl.tree import Tree

UNKNOWN = float("nan")  # |S_r|, as long as the round is open


class Snapshot(NamedTuple):
    """A site's memory as it was after one of its pushes, before it was settled."""

    seq: int  # the push; 0 for a newcomer
    digest: str  # its checksum
    memory: Client


def first_index(algorithm: Algorithm) -> int:
    """The index an epoch begins with: -1 is the round before round 0."""
    return -1 if algorithm.starts_warm else 0


def newcomer(algorithm: Algorithm, params: Tree) -> Snapshot:
    """Whoever has pushed nothing in this epoch, which began with these parameters."""
    return Snapshot(0, "", algorithm.init(params)[1])


def retract(
    algorithm: Algorithm, settled: Client, down: Message, rd: Round, like: Client
) -> tuple[Client, Message]:
    """A last push, of gradients that are zero, which takes back all that was pushed.

    Raise if the memory does not end as that of a newcomer, `like`. So it is never where
    the server's answer to a push moves the memory once more.
    """
    if read_by_settle(algorithm, like, down, rd):
        raise _no_goodbye(algorithm)
    batches = [None] * rd.local_steps
    memory, up = client_round(
        algorithm, settled, down, lambda x, batch: tree.zeros(x), batches, rd
    )
    gaps: list[bool] = []
    tree.map(lambda *parts: gaps.append(_differ(*parts)), memory, like, settled)
    if any(gaps):
        raise _no_goodbye(algorithm)
    return memory, up


def _no_goodbye(algorithm: Algorithm) -> ValueError:
    return ValueError(
        f"{algorithm!r} has no goodbye: one push cannot take back what a site has "
        "contributed. Just stop asking it, or begin a new epoch without it."
    )


def _differ(a: Any, b: Any, scale: Any) -> bool:
    """Whether two leaves differ by more than rounding, where numbers are so large."""
    rounding = 1e-3 if np.asarray(a).dtype.itemsize < 8 else 1e-6
    most = rounding * (1 + np.max(np.abs(scale), initial=0))
    return bool(np.max(np.abs(a - b), initial=0) > most)


def read_by_settle(
    algorithm: Algorithm, memory: Client, down: Message, rd: Round
) -> tuple[str, ...]:
    """What of the broadcast a memory is told after a push was counted."""
    if not settles(algorithm):
        return ()
    read = _Read(down)
    algorithm.settle(memory, read, rd._replace(lr=1.0, num_active=1))
    return tuple(name for name in down if name in read.names)


class _Read(dict):
    """A message that notes which of its names are looked at."""

    def __init__(self, message: Message):
        dict.__init__(self, message)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return dict.__getitem__(self, name)

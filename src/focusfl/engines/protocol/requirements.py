"""What an algorithm requires of the protocol, found by a trial on a model of ones."""

from typing import NamedTuple

import numpy as np

from focusfl import tree
from focusfl.algorithms.coded import coded_in
from focusfl.core import Algorithm, Message, Round
from focusfl.engines.client_round import client_round
from focusfl.engines.protocol.format import leaves
from focusfl.engines.protocol.snapshots import (
    UNKNOWN,
    Snapshot,
    newcomer,
    read_by_settle,
)
from focusfl.tree import Tree


class Requirements(NamedTuple):
    """What messages of an algorithm must carry, and when they may count."""

    up: Message  # a push, for its paths, shapes and dtypes
    settle: tuple[str, ...]  # what `settle` reads of the broadcast
    start: bool  # whether a newcomer must know the model its epoch began with
    late: bool  # whether a push may count in a later round than it was made for
    whole: bool  # whether pushes can be compared by size: each is of all coordinates


def requirements(
    algorithm: Algorithm, params: Tree, num_clients: float | int
) -> Requirements:
    """Raise ValueError if an algorithm cannot be deployed; else say what it needs."""
    ones = tree.map(lambda a: 0 * a + 1, params)
    server, _ = algorithm.init(ones)
    snapshot, down = newcomer(algorithm, ones), algorithm.broadcast(server)
    rd = Round(0, 0.5, 1, num_clients, UNKNOWN)
    memory, up = client_round(
        algorithm, snapshot.memory, down, lambda x, batch: x, [None], rd
    )
    if not _finite({"memory": memory, "up": up}):
        raise ValueError(
            f"{algorithm!r} cannot be deployed: a participant asks how many take part "
            "(rd.num_active), which nobody knows before the round is over."
        )
    zeros, coded = tree.zeros(params), coded_in(algorithm)
    return Requirements(
        up,
        read_by_settle(algorithm, memory, down, rd),
        "x" not in down
        or not _same(newcomer(algorithm, zeros).memory, snapshot.memory),
        _takes_late(algorithm, snapshot, down, rd),
        coded is None or coded.codec.sends_all,
    )


def takes_late(algorithm: Algorithm, params: Tree) -> bool:
    """Whether a push may count in a later round than it was made for."""
    ones = tree.map(lambda a: 0 * a + 1, params)
    down = algorithm.broadcast(algorithm.init(ones)[0])
    rd = Round(0, 0.5, 1, 2, 1)
    return _takes_late(algorithm, newcomer(algorithm, ones), down, rd)


def _takes_late(
    algorithm: Algorithm, snapshot: Snapshot, down: Message, rd: Round
) -> bool:
    """Whether all that a memory takes from the broadcast is in the push as well.

    If not, the server works it out from its own state, which is another one later.
    """
    local = algorithm.pull(snapshot.memory, down)
    memory, up = algorithm.push(snapshot.memory, down, local, rd)
    for name in down:
        moved = {**down, name: tree.map(lambda a: a + 1, down[name])}
        other, pushed = algorithm.push(snapshot.memory, moved, local, rd)
        if _same(up, pushed) and not _same(memory, other):
            return False
    return True


def _same(a: Tree, b: Tree) -> bool:
    return all(map(np.array_equal, leaves(a), leaves(b)))


def _finite(a: Tree) -> bool:
    return all(np.isfinite(leaf).all() for leaf in leaves(a))

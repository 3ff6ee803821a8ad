"""Whether the server holds what its sites say they gave it."""

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np

from focusfl import tree
from focusfl.algorithms import (
    amplified_scaffold,
    coded,
    feddyn,
    fedvarp,
    focus,
    late,
    mifa,
    scaffold,
    t_focus,
    t_scaffold,
)
from focusfl.engines.protocol.format import leaves

# The server's field that follows the sites' memories, theirs, and whether as the mean.
TRACKED = {
    focus.Server: ("y", "grad", False),
    scaffold.Server: ("c", "c", True),
    mifa.Server: ("g", "g", True),
    fedvarp.Server: ("y", "y", True),
    feddyn.Server: ("h", "g", True),
    amplified_scaffold.Server: ("mean", "mean", True),
    t_focus.Server: ("line", "line", False),
    t_scaffold.Server: ("line", "line", False),
}
# Of coded memories: the push by whose unsent part the server has less of them.
OWED = {
    focus.Client: "y",
    mifa.Client: "dg",
    fedvarp.Client: "dy",
    scaffold.Client: "dc",  # with option 1
}


def tracking_error(
    server: Any,
    memories: Iterable[Any | None],
    num_clients: float | int,
    weights: Iterable[float | int] | None = None,
) -> float:
    """The largest difference between what is tracked and what the sites remember.

    Args:
        server: the algorithm's state on the server.
        memories: those of the pushes counted last; None of who has none.
        num_clients: N, or the sum of all weights.
        weights: of those whose memories these are; None: all alike.
    """
    if type(server) not in TRACKED:
        raise ValueError(f"this server tracks nothing: it keeps {server._fields}.")
    ours, theirs, mean = TRACKED[type(server)]
    total, share = getattr(server, ours), 1 / num_clients if mean else 1.0
    each = repeat(1.0) if weights is None else weights
    for memory, weight in zip(memories, each, strict=weights is not None):
        if memory is None:  # nothing of it is tracked
            continue
        total = tree.axpy(-weight * share, _told(memory, theirs), total)
    return max(float(np.max(np.abs(a), initial=0)) for a in leaves(total))


def _told(memory: Any, theirs: str) -> Any:
    """What the server has of a memory: all but what was not sent."""
    if isinstance(memory, late.Client):
        return _told(memory.inner, theirs)
    if not isinstance(memory, coded.Client):
        return getattr(memory, theirs)
    name = OWED.get(type(memory.inner), "")
    if name not in memory.unsent:
        raise ValueError(
            "this server tracks what cannot be told from coded memories: they keep "
            f"what is unsent of {', '.join(memory.unsent)}."
        )
    return tree.sub(getattr(memory.inner, theirs), memory.unsent[name])

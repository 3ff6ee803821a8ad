"""How large a push may be, and when the server's sums have lost too many digits.

A number far larger than all others takes their last digits with it when it is added,
and does not give them back when it is subtracted. So a push far larger than any before
is refused. If one was counted all the same, the sums are recomputed from the sites'
states once these have their usual size again.
"""

import math
import sys
from typing import Any

import numpy as np

from focusfl.core.tree import Tree
from focusfl.flower.protocol.messages import Refused, leaves

SPIKE = 1e6  # times the largest push so far: no beginning and no step is so large
NEW = 3  # pushes before a site is known; until then a push may be SPIKE ** 2
STRIKES = 5  # pushes refused in a row, after which a site is left out
LARGEST = sys.float_info.max


class TooLarge(Refused):
    """A push that is larger than it may be."""


def norm(a: Any) -> float:
    """Compute the Euclidean norm of a tree, finite if its numbers are."""
    parts = [np.asarray(leaf, float) for leaf in leaves(a)]
    largest = max((float(np.max(np.abs(p), initial=0)) for p in parts), default=0.0)
    if not largest or math.isinf(largest):
        return largest
    squares = sum(float(np.sum(np.square(part / largest))) for part in parts)
    return min(largest * math.sqrt(squares), LARGEST)


def check_size(
    size: float, max_norm: float | None, largest: float, pushes: int, others: bool
) -> None:
    """Raise TooLarge if a push is larger than it may be.

    Args:
        size: norm of the push.
        max_norm: the most it may be; None: what the pushes before it suggest.
        largest: norm of the largest push so far; 0 if there is none.
        pushes: how many pushes of this site were counted.
        others: whether any other site has pushed.
    """
    if max_norm is not None:
        if not size <= max_norm:
            raise TooLarge(f"its norm is {size:.3g}; at most {max_norm:.3g} may pass.")
        return
    times = SPIKE
    if pushes < NEW:
        # A newcomer is compared with others: alone they may have been at rest.
        times = SPIKE**2 if others else math.inf
    if size > times * largest > 0:
        raise TooLarge(
            f"its norm is {size:.3g}; the largest so far was {largest:.3g}. Give "
            "max_norm if it may be so large."
        )


def check_memory(size: float, max_memory: float | None) -> None:
    """Raise TooLarge if what a push would leave of its site at the server is too large.

    Pushes that are each small enough may add up: this bounds their sum.

    Args:
        size: norm of what the server's sums would hold of the site.
        max_memory: the most it may be; None: any.
    """
    if max_memory is not None and not size <= max_memory:
        raise TooLarge(
            f"with it the server would hold {size:.3g} of this site; at most "
            f"{max_memory:.3g} may stay."
        )


def lost_digits(largest: float, now: float, x: Tree) -> bool:
    """Say whether sums that once held `largest` are too coarse for numbers of size `now`.

    They keep more than half of their digits: 10 of float64, 4 of float32.
    """
    rounding = max(np.finfo(np.asarray(leaf).dtype).eps for leaf in leaves(x))
    return 0 < now and largest > min(SPIKE, float(rounding) ** -0.4) * now

"""How large a push may be, and when the server's sums have lost too many digits.

A number far larger than all others takes their last digits with it when it is added,
and does not give them back when it is subtracted. So a push far larger than any before
is refused, and where there is none to compare it with, one that would carry the model
away, from where it would take thousands of rounds to come back. If one was counted all
the same, the sums are recomputed from the sites' states once these have their usual size
again.
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


def limit_of_model(x: Tree, lr: float) -> float:
    """Bound the norm of a push that can be compared with nothing but the model.

    Whether a push is a gradient, by which the model moves `lr` times, or a difference of
    models, it may move the model by SPIKE ** 2 times its norm, or its size.
    """
    size = norm(x) + math.sqrt(sum(np.size(leaf) for leaf in leaves(x)))
    return SPIKE**2 * size / min(lr, 1.0)


def check_size(
    size: float, max_norm: float | None, largest: float, pushes: int, others: bool,
    of_model: float,
) -> None:  # fmt: skip
    """Raise TooLarge if a push is larger than it may be.

    Args:
        size: norm of the push.
        max_norm: the most it may be; None: what the pushes before it suggest.
        largest: norm of the largest push to compare with; 0 if there is none.
        pushes: how many pushes of this site were counted.
        others: whether any other site has pushed.
        of_model: the most it may be where no push can be compared with it.
    """
    if max_norm is not None:
        if not size <= max_norm:
            raise TooLarge(f"its norm is {size:.3g}; at most {max_norm:.3g} may pass.")
        return
    times = SPIKE
    if pushes < NEW:
        # A newcomer is compared with others: alone they may have been at rest.
        times = SPIKE**2 if others else 0.0
    if not times * largest:
        if size > of_model:
            raise TooLarge(
                f"its norm is {size:.3g}, which would carry the model away; without other "
                f"pushes to compare it with at most {of_model:.3g} may pass. Lower lr, or "
                "give max_norm if it may be so large."
            )
        return
    if size > times * largest:
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

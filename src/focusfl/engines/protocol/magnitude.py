"""How large pushes and models may be, and what follows if they were larger.

A number that is far larger than all others takes their last digits with it: what the
server sums is then wrong by as much, for ever. So a push that is far larger than any
before is refused; and if the model was far away all the same, and is back, a new epoch
begins, whose sums are made of numbers of the right size.
"""

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from focusfl.engines.protocol.format import Refused, leaves
from focusfl.tree import Tree

SPIKE = 1e6  # times the largest push before, one more is no beginning and no step
FEW = 3  # pushes of a site before it is known; until then it may be SPIKE ** 2
LESS = 1e3  # by which the model must come nearer from one such epoch to the next


class TooLarge(Refused):
    """A push that is larger than it may be."""


class Reach(NamedTuple):
    """How far the model was, and the largest push: norms."""

    start: float  # of the model when the job was begun
    far: float  # the largest of the model in this epoch
    left: float = 0.0  # that of the last epoch which ended for it; 0: none did
    push: float = 0.0  # the largest push of this epoch


def norm(a: Any) -> float:
    """The Euclidean norm of a tree, finite if its numbers are."""
    parts = [np.asarray(leaf, float) for leaf in leaves(a)]
    largest = max((float(np.max(np.abs(p), initial=0)) for p in parts), default=0.0)
    if not largest or math.isinf(largest):
        return largest
    squares = sum(float(np.sum(np.square(part / largest))) for part in parts)
    return min(largest * math.sqrt(squares), sys.float_info.max)


def is_spike(size: float, pushes: int, largest: float, times: float = SPIKE) -> bool:
    """Whether a site that has pushed so often pushes far more than anybody before."""
    return size > (times if pushes >= FEW else times**2) * largest > 0


def check_size(
    size: float, most: float | int | None, pushes: int, largest: float
) -> None:
    """Raise TooLarge if a push is larger than it may be.

    That is `most`, or if None what those before it say, everybody's of this epoch.
    """
    if most is not None and not size <= most:
        raise TooLarge(f"its norm is {size:.3g}; {most:.3g} is the most it may be.")
    if most is None and is_spike(size, pushes, largest):
        raise TooLarge(
            f"its norm is {size:.3g}; the largest of this epoch was {largest:.3g}. "
            "Give max_norm if it may be so large."
        )


def harmless(x: Tree) -> float:
    """How many times larger numbers may be that are added and taken away again.

    More than half of the digits are left: 10 of float64, 4 of float32.
    """
    rounding = max(np.finfo(leaf.dtype).eps for leaf in leaves(x))
    return min(SPIKE, float(rounding) ** -0.4)


def strayed(reach: Reach, x: Tree) -> str:
    """Say so if the model was so far away that what is summed has lost its digits.

    Not where it only came nearer to zero from where it began; and only once, if it
    does not come nearer from one epoch to the next.
    """
    if not harmless(x) * max(norm(x), reach.start) < reach.far < math.inf:
        return ""
    if reach.left and reach.far > reach.left / LESS:
        return ""
    return f"the model is back from a norm of {reach.far:.3g}"

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

from focusfl.core import Server
from focusfl.engines.protocol.format import Refused, leaves
from focusfl.tree import Tree

SPIKE = 1e6  # times the largest push before, one more is no beginning and no step
FEW = 3  # pushes of a site before it is known; until then it may be SPIKE ** 2
LARGEST = sys.float_info.max
LESS = 1e3  # by which the model must come nearer from one such epoch to the next


class TooLarge(Refused):
    """A push that is larger than it may be."""


class Reach(NamedTuple):
    """How far the model was, and the largest push: norms."""

    start: float  # of the model when the job was begun
    far: float  # the largest of the model in this epoch
    left: float = 0.0  # that of the last epoch which ended for it; 0: none did
    push: float = 0.0  # the largest push of this epoch
    by: str = ""  # whose that is
    other: float = 0.0  # the largest of anybody else
    times: float = 0.0  # how much larger a first one was for which an epoch ended
    still: bool = True  # the model has not moved in this epoch

    def pushed(self, site: str, size: float) -> "Reach":
        """With one more push."""
        if site == self.by or size > self.push:
            other = self.other if site == self.by else self.push
            return self._replace(push=max(self.push, size), by=site, other=other)
        return self._replace(other=max(self.other, size))

    def nearer(self, times: float) -> bool:
        """Whether it is not as much as when an epoch ended for a first push before.

        Else it is how this job is: an epoch more would begin as this one did.
        """
        return not self.times or times * LESS < self.times


def norm(a: Any) -> float:
    """The Euclidean norm of a tree, finite if its numbers are."""
    parts = [np.asarray(leaf, float) for leaf in leaves(a)]
    largest = max((float(np.max(np.abs(p), initial=0)) for p in parts), default=0.0)
    if not largest or math.isinf(largest):
        return largest
    squares = sum(float(np.sum(np.square(part / largest))) for part in parts)
    return min(largest * math.sqrt(squares), LARGEST)


def is_spike(size: float, pushes: int, reach: Reach, times: float = SPIKE) -> bool:
    """Whether a site that has pushed so often pushes far more than anybody before.

    What a newcomer gives is compared with that of two others: one alone may be at rest.
    """
    if pushes < FEW:
        times = times**2 if reach.other else math.inf
    return size > times * reach.push > 0


def with_push(
    reach: Reach, site: str, size: float, pushes: int, x: Tree
) -> tuple[Reach, bool]:
    """The reach with one more push, and whether the epoch must end for it."""
    spiked = is_spike(size, pushes, reach, harmless(x))
    if spiked and pushes < FEW:
        times = size / reach.push
        if spiked := reach.nearer(times):
            reach = reach._replace(times=times)
    return reach.pushed(site, size), spiked


def after_round(
    reach: Reach, before: Server, after: Server, warm: bool, leaving: bool
) -> tuple[Reach, bool]:
    """The reach when a round has moved the model, and whether the epoch must end.

    In the first such round of a `warm` start the model is where it was when everybody
    gave what is summed. That hardly changes unless some of it was a mistake, or
    somebody is `leaving`; then it was one only if somebody gave far more than others.
    """
    spiked = False
    if warm and reach.still:
        sum_before, sum_after = _sums(before), _sums(after)
        fell = LARGEST if sum_before else 0.0
        if sum_after > sum_before / LARGEST:
            fell = sum_before / sum_after
        times = harmless(after.x)
        unlike = reach.push > times * reach.other > 0 or not leaving
        if spiked := unlike and fell > times and reach.nearer(fell):
            reach = reach._replace(times=fell)
    return reach._replace(far=max(reach.far, norm(after.x)), still=False), spiked


def _sums(server: Server) -> float:
    """The norm of what a server holds beside the model."""
    return norm(server._replace(x={}))


def check_size(
    size: float, most: float | int | None, pushes: int, reach: Reach
) -> None:
    """Raise TooLarge if a push is larger than it may be.

    That is `most`, or if None what those before it say, everybody's of this epoch.
    """
    if most is not None and not size <= most:
        raise TooLarge(f"its norm is {size:.3g}; {most:.3g} is the most it may be.")
    if most is None and is_spike(size, pushes, reach):
        raise TooLarge(
            f"its norm is {size:.3g}; the largest of this epoch was {reach.push:.3g}. "
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

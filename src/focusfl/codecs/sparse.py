"""What codecs that send some of the numbers share."""

import math
from dataclasses import dataclass
from typing import Any

from focusfl.codecs.checks import check_enough, check_kept
from focusfl.codecs.codec import Codec


@dataclass(frozen=True)
class Sparse(Codec):
    """Send k numbers of each leaf as they are, and none of the others."""

    k: float | int = 0.1  # of each leaf's numbers: which share, or how many if >= 1

    def __post_init__(self):
        check_kept(self.k)

    def check(self, shape):
        check_enough(self.k, shape, math.prod(shape))

    def kept(self, size: int) -> int:
        """How many numbers of a leaf are sent."""
        return math.ceil(self.k * size) if self.k < 1 else int(self.k)


def largest(scores: Any, count: int) -> Any:
    """Whether each of these is among the largest, so many; of equal ones, the last."""
    ranks = scores.argsort(stable=True).argsort(stable=True)
    return ranks >= scores.shape[0] - count

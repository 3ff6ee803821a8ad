"""`LowRank`: matrices as products of thin ones."""

import math
from dataclasses import dataclass
from typing import Any

from focusfl.compression.compressor import Compressor, Load
from focusfl.compression.dither import uniform
from focusfl.compression.packing import from_raw, raw
from focusfl.core.registry import COMPRESSORS
from focusfl.core.validation import check_count


@COMPRESSORS.register("low_rank")
@dataclass(frozen=True)
class LowRank(Compressor):
    """Send a matrix as a sum of `rank` products of a column and a row.

    Each column comes from a few power iterations on the remaining matrix, from a start that
    the round draws, and its row is the best one for it: M - p (p·M) is never larger than M.
    An array of more axes is a matrix of its first axis and all others. A leaf with one axis,
    or one that would not be smaller, is sent as it is. After PowerSGD, Vogels et al. 2019,
    https://arxiv.org/abs/1905.13727

    Raises:
        ValueError: If rank or passes is below 1.
    """

    rank: int = 2  # at least 1
    passes: int = 2  # power iterations of each column

    def __post_init__(self):
        check_count("rank", self.rank)
        check_count("passes", self.passes)

    def applies(self, shape):
        if len(shape) < 2:
            return False
        return self.rank * (shape[0] + math.prod(shape[1:])) < math.prod(shape)

    def approximate(self, a, index, salt):
        return _sum(self._factors(a, index, salt)).reshape(a.shape)

    def encode(self, a, index, salt):
        factors = self._factors(a, index, salt)
        return b"".join(raw(part, a.dtype) for pair in factors for part in pair)

    def decode(self, blob, shape, dtype, index, salt):
        del index, salt
        high, wide = shape[0], math.prod(shape[1:])
        each = from_raw(blob, dtype).reshape(self.rank, high + wide)
        return _sum([(part[:high], part[high:]) for part in each]).reshape(shape)

    def _factors(self, a: Any, index: Any, salt: int) -> list[tuple[Any, Any]]:
        """Compute the columns and their rows."""
        left = a.reshape(a.shape[0], -1)
        top, factors = abs(left).max(), []
        for k in range(self.rank):
            row = uniform(a, left.shape[1], index, salt + k) - 0.5
            for _ in range(self.passes):
                # By the largest entry: squares of small numbers would vanish.
                column = left @ row / (top + (top == 0))
                norm = (column * column).sum() ** 0.5
                column = column / (norm + (norm == 0))
                row = column @ left
            left = left - _product(column, row)
            factors.append((column, row))
        return factors

    def load(self, shape, plain):
        numbers = self.rank * (shape[0] + math.prod(shape[1:]))
        return Load(numbers, plain.width, plain.beside)


def _product(column: Any, row: Any) -> Any:
    return column[:, None] * row[None, :]


def _sum(factors: list[tuple[Any, Any]]) -> Any:
    first, *others = (_product(*pair) for pair in factors)
    return sum(others, first)

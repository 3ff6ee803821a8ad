"""Whole numbers of few bits, and one scale per leaf or block of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.compression.compressor import Load
from focusfl.compression.dither import as_like, between, uniform
from focusfl.compression.packing import from_raw, raw
from focusfl.compression.rounding import Rounding, check_bits
from focusfl.core.registry import COMPRESSORS
from focusfl.core.validation import check_count, check_one_of


@COMPRESSORS.register("quantize")
@dataclass(frozen=True)
class Quantize(Rounding):
    """Send every number as a whole one of a few bits, times one scale per leaf.

    The largest becomes 2^(bits - 1) - 1; two bits are -1, 0 and 1. What travels as the
    scale is then the best one for what they were rounded to, in least squares: what is
    left is at a right angle to what was sent, so that no rounding can make it longer
    than what was there.

    With `block` so many numbers that follow each other have a scale of their own: finer
    where some parts of a leaf are much larger than others, at one more number a block.
    """

    bits: int = 8  # from 2 to 8
    rounding: str = "nearest"  # or "stochastic": up as often as it is near
    block: int | None = None  # numbers that share a scale; None: all of a leaf

    def __post_init__(self):
        check_bits("bits", self.bits, 2, 8)
        check_one_of("rounding", self.rounding, ("nearest", "stochastic"))
        if self.block is not None:
            check_count("block", self.block)

    def __repr__(self):  # without blocks, as it is in states that are on disk
        block = "" if self.block is None else f", block={self.block}"
        return f"Quantize(bits={self.bits}, rounding={self.rounding!r}{block})"

    def rounded(self, a, index, salt):
        most = 2 ** (self.bits - 1) - 1
        unit = self._of_each(abs(a), "max") / most
        near = a / (unit + (unit == 0))
        shift = 0.5
        if self.rounding == "stochastic":
            count = a.reshape(-1).shape[0]
            shift = uniform(a, count, index, salt).reshape(a.shape)
        whole = between((near + shift) // 1, most)
        square = self._of_each(whole * whole, "sum")
        along = self._of_each(near * whole, "sum")
        return unit * along / (square + (square == 0)), whole

    def _of_each(self, values: Any, what: str) -> Any:
        """The maximum or sum of a leaf; or of each block, at every number of it.

        Of numbers whose maximum is not negative: what fills the last block is 0.
        """
        if self.block is None:
            return getattr(values, what)()
        flat = values.reshape(-1)
        size, blocks = flat.shape[0], self._blocks(flat.shape[0])
        places = np.arange(blocks * self.block)
        there = as_like(flat, (places < size) * 1.0)
        rows = (there * flat[np.minimum(places, size - 1)]).reshape(blocks, self.block)
        found = getattr(rows, what)(-1)
        found = found[0] if isinstance(found, tuple) else found  # torch says where, too
        return found[np.arange(size) // self.block].reshape(values.shape)

    def _blocks(self, size: int) -> int:
        return 1 if self.block is None else -(-size // self.block)

    def write(self, scale, whole):
        scales = np.reshape(scale, -1)[:: self.block]
        return raw(scales, whole.dtype) + super().write(scale, whole)

    def read(self, blob, count, dtype):
        size = self._blocks(count) * np.dtype(dtype).itemsize
        whole = self.whole(blob[size:], count, dtype)
        each = np.repeat(from_raw(blob[:size], dtype), self.block or count)
        return each[:count] * whole

    def load(self, shape, plain):
        scales = plain.width * self._blocks(plain.numbers)
        return Load(plain.numbers, self.bits, plain.beside + scales)

"""`Quantize`: whole numbers of few bits, and one scale per leaf or block of it."""

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
    """Send every number as a whole number of a few bits, times one scale per leaf.

    The largest number becomes 2^(bits - 1) - 1; with two bits, numbers are -1, 0 and 1. The
    scale that is sent is the least-squares one for the rounded numbers: the error is
    orthogonal to what is sent, and so never larger than the leaf.

    With `block`, each run of so many numbers has its scale, which is finer where parts of a
    leaf are much larger than others, and costs one more number per block.

    Raises:
        ValueError: If bits, rounding or block is out of its range.
    """

    bits: int = 8  # from 2 to 8
    rounding: str = "nearest"  # or "stochastic": up with the chance that makes it unbiased
    block: int | None = None  # numbers that share a scale; None: all of a leaf

    def __post_init__(self):
        check_bits("bits", self.bits, 2, 8)
        check_one_of("rounding", self.rounding, ("nearest", "stochastic"))
        if self.block is not None:
            check_count("block", self.block)

    def __repr__(self):  # block only where there is one
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
        """Compute the maximum or sum of a leaf, or that of its block for every number.

        The maximum of numbers must not be negative, as the last block is filled with 0.
        """
        if self.block is None:
            return getattr(values, what)()
        flat = values.reshape(-1)
        size, blocks = flat.shape[0], self._blocks(flat.shape[0])
        places = np.arange(blocks * self.block)
        exists = as_like(flat, (places < size) * 1.0)
        rows = (exists * flat[np.minimum(places, size - 1)]).reshape(blocks, self.block)
        result = getattr(rows, what)(-1)
        result = result[0] if isinstance(result, tuple) else result  # torch adds places
        return result[np.arange(size) // self.block].reshape(values.shape)

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

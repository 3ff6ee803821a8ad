"""Compressors that send whole numbers of few bits: `Quantize` and `FixedPoint`."""

import abc
import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from focusfl.compression.compressor import Compressor, Load
from focusfl.compression.dither import as_like, between, uniform
from focusfl.compression.packing import from_raw, pack_signed, raw, unpack_signed
from focusfl.core import COMPRESSORS
from focusfl.core.validation import check_count, check_one_of, shown


@dataclass(frozen=True)
class Rounding(Compressor):
    """Base of compressors that send whole numbers of `bits` bits, times a scale."""

    bits: int

    @abc.abstractmethod
    def rounded(self, a: Any, index: Any, salt: int) -> tuple[Any, Any]:
        """Round an array: return the scale and the whole numbers, in the dtype of `a`."""

    def approximate(self, a, index, salt):
        scale, whole = self.rounded(a, index, salt)
        return scale * whole

    def encode(self, a, index, salt):
        return self.write(*self.rounded(a, index, salt))

    def decode(self, blob, shape, dtype, index, salt):
        del index, salt
        return self.read(blob, math.prod(shape), dtype).reshape(shape)

    def write(self, scale: Any, whole: np.ndarray) -> bytes:
        """Write the scale, if the receiver does not know it, and whole numbers as bytes."""
        del scale
        return pack_signed(whole, self.bits)

    @abc.abstractmethod
    def read(self, blob: bytes, count: int, dtype: Any) -> np.ndarray:
        """Read `count` numbers: whole numbers times the scale."""

    def whole(self, blob: bytes, count: int, dtype: Any) -> np.ndarray:
        """Read `count` whole numbers."""
        return unpack_signed(blob, count, self.bits).astype(dtype)

    def load(self, shape, plain):
        return Load(plain.numbers, self.bits, plain.beside)


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


@COMPRESSORS.register("fixed_point")
@dataclass(frozen=True)
class FixedPoint(Rounding):
    """Send the nearest multiple of 2^-fraction, as a whole number of `bits` bits.

    Sums of such numbers are exact in any order, and can be masked. A number that is too large
    is sent as the largest one, and the rest later. Less than half a step is never sent: a run
    is exact to this resolution and no further.

    Raises:
        ValueError: If bits or fraction are out of their ranges.
    """

    bits: int = 32  # from 2 to 53, including the sign
    fraction: int = 24  # bits after the binary point, from 0 to 64

    def __post_init__(self):
        check_bits("bits", self.bits, 2, 53)  # what a float64 holds
        check_bits("fraction", self.fraction, 0, 64)

    @property
    def vanishes(self):
        return False

    def rounded(self, a, index, salt):
        del index, salt
        unit, most = 2.0**-self.fraction, 2 ** (self.bits - 1) - 1
        return unit, between((a / unit + 0.5) // 1, most)

    def read(self, blob, count, dtype):
        return 2.0**-self.fraction * self.whole(blob, count, dtype)


def check_bits(name: str, bits: Any, least: int, most: int) -> None:
    """Raise ValueError unless this is a whole number from `least` to `most`."""
    whole = isinstance(bits, Integral) and not isinstance(bits, bool)
    if not whole or not least <= bits <= most:
        raise ValueError(
            f"{name} must be a whole number from {least} to {most}; got {shown(bits)}."
        )

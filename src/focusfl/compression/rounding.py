"""The base of compressors that send whole numbers."""

import abc
import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from focusfl.compression.compressor import Compressor
from focusfl.compression.packing import pack_signed, unpack_signed
from focusfl.core.validation import shown


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


def check_bits(name: str, bits: Any, least: int, most: int) -> None:
    """Raise ValueError unless this is a whole number from `least` to `most`."""
    whole = isinstance(bits, Integral) and not isinstance(bits, bool)
    if not whole or not least <= bits <= most:
        raise ValueError(
            f"{name} must be a whole number from {least} to {most}; got {shown(bits)}."
        )

"""What compressors that send whole numbers share."""

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
    """Send whole numbers of so many bits, that are to be multiplied by a scale."""

    bits: int

    @abc.abstractmethod
    def rounded(self, a: Any, index: Any, salt: int) -> tuple[Any, Any]:
        """The scale, and the whole numbers, in the dtype of `a`."""

    def approximate(self, a, index, salt):
        scale, whole = self.rounded(a, index, salt)
        return scale * whole

    def encode(self, a, index, salt):
        return self.write(*self.rounded(a, index, salt))

    def decode(self, blob, shape, dtype, index, salt):
        del index, salt
        return self.read(blob, math.prod(shape), dtype).reshape(shape)

    def write(self, scale: Any, whole: np.ndarray) -> bytes:
        """The scale, if it must be told, and whole numbers as bytes."""
        del scale
        return pack_signed(whole, self.bits)

    @abc.abstractmethod
    def read(self, blob: bytes, count: int, dtype: Any) -> np.ndarray:
        """So many numbers, each a whole one times the scale."""

    def whole(self, blob: bytes, count: int, dtype: Any) -> np.ndarray:
        """So many whole numbers."""
        return unpack_signed(blob, count, self.bits).astype(dtype)


def check_bits(name: str, bits: Any, least: int, most: int) -> None:
    """Raise unless this is a number of bits, not fewer and not more than these."""
    whole = isinstance(bits, Integral) and not isinstance(bits, bool)
    if not whole or not least <= bits <= most:
        raise ValueError(
            f"{name} must be a whole number from {least} to {most}; got {shown(bits)}."
        )

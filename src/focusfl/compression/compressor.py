"""The contract of compressors: an approximation of an array, and how many bits it takes."""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from focusfl.compression.packing import from_raw, raw


class Load(NamedTuple):
    """The size of one leaf of a message."""

    numbers: int  # how many are sent
    width: int  # bits of each
    beside: int = 0  # bits of scales and positions

    @property
    def bits(self) -> int:
        """The number of bits in all."""
        return self.numbers * self.width + self.beside


@dataclass(frozen=True)
class Compressor(abc.ABC):
    """How an array is sent in fewer bits; a frozen value that works on any array library.

    `approximate` is decode(encode(a)), of the shape and dtype of `a`: what the receiver
    reads. It is never further from `a` than 0 is (in the mean over rounds, if it draws), and
    0 is sent as 0, which is all that error feedback needs.

    `encode` and `decode` are its two halves, from NumPy to bytes and back, for a deployment.
    The number of bytes depends on shape and dtype alone. A compressor that does not override
    them sends the approximation in full.
    """

    @abc.abstractmethod
    def approximate(self, a: Any, index: Any, salt: int) -> Any:
        """Return what the receiver reads of `a`.

        Args:
            a: the array.
            index: the number of the round.
            salt: distinguishes leaves; random draws follow from it, the round and the place
                of a number alone.
        """

    @abc.abstractmethod
    def load(self, shape: tuple[int, ...], plain: Load) -> Load:
        """Return the size of a leaf of this shape, which is `plain` without compression."""

    def encode(self, a: np.ndarray, index: int, salt: int) -> bytes:
        """Return the bytes that are sent of `a`, whose numbers are finite."""
        return raw(self.approximate(a, index, salt), a.dtype)

    def decode(
        self, blob: bytes, shape: tuple[int, ...], dtype: Any, index: int, salt: int
    ) -> np.ndarray:
        """Return what bytes stand for: `approximate`, to the bit but for the sign of zeros.

        Raises:
            ValueError: If `encode` cannot have returned these bytes.
        """
        del index, salt
        return from_raw(blob, dtype).reshape(shape)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if a leaf of this shape cannot be compressed."""
        del shape

    def applies(self, shape: tuple[int, ...]) -> bool:
        """Whether a leaf of this shape is compressed; others are sent as they are."""
        return shape != ()

    @property
    def sends_all(self) -> bool:
        """Whether every message says something about all coordinates."""
        return True

    @property
    def vanishes(self) -> bool:
        """Whether the error vanishes if one array is sent again and again with feedback."""
        return True

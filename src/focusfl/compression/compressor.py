"""What a compressor is: a coarser message, and how many bits it takes."""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from focusfl.compression.packing import from_raw, raw


class Load(NamedTuple):
    """What one leaf takes on its way: so many numbers of so many bits, and the rest."""

    numbers: int
    width: int
    beside: int = 0  # bits of scales and positions

    @property
    def bits(self) -> int:
        return self.numbers * self.width + self.beside


@dataclass(frozen=True)
class Compressor(abc.ABC):
    """How one array is sent in fewer bits. A value, on any array library.

    `approximate` is decode(encode(a)), of the shape and dtype of `a`: what the receiver
    reads. It is never further from `a` than 0 is, in the mean over rounds where it
    draws, and 0 is sent as 0: all that error feedback needs.

    `encode` and `decode` are its two halves, in numpy and in bytes: what a deployment
    sends. How many bytes depends on shape and dtype alone. A compressor that does not write
    them anew sends what is read, in full.
    """

    @abc.abstractmethod
    def approximate(self, a: Any, index: Any, salt: int) -> Any:
        """What is read of `a`, if it is sent in this round. The salt tells leaves
        apart: what is drawn follows from it, the round and a number's place alone."""

    @abc.abstractmethod
    def load(self, shape: tuple[int, ...], plain: Load) -> Load:
        """What a leaf of this shape takes that would take `plain` without this."""

    def encode(self, a: np.ndarray, index: int, salt: int) -> bytes:
        """What travels of `a`, whose numbers are finite."""
        return raw(self.approximate(a, index, salt), a.dtype)

    def decode(
        self, blob: bytes, shape: tuple[int, ...], dtype: Any, index: int, salt: int
    ) -> np.ndarray:
        """What is read of it: `approximate`, to the bit but for the sign of zeros.
        Raise ValueError if nobody can have encoded this."""
        del index, salt
        return from_raw(blob, dtype).reshape(shape)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if a leaf of this shape cannot be sent so."""
        del shape

    def applies(self, shape: tuple[int, ...]) -> bool:
        """Whether a leaf of this shape is coded; what is not travels as it is."""
        return shape != ()

    @property
    def sends_all(self) -> bool:
        """Whether something of all coordinates is sent each time."""
        return True

    @property
    def vanishes(self) -> bool:
        """Whether what is left unsent does, if one and the same is sent again and
        again."""
        return True

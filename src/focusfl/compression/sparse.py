"""Compressors that send some of the numbers: `TopK` and `RandomK`."""

import abc
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.compression.compressor import Compressor, Load
from focusfl.compression.dither import uniform
from focusfl.compression.packing import bytes_of, from_raw, pack, raw, unpack
from focusfl.core import COMPRESSORS
from focusfl.core.validation import is_number, shown


@dataclass(frozen=True)
class Sparse(Compressor):
    """Base of compressors that send k numbers of each leaf in full, and none of the others."""

    k: float | int = 0.1  # numbers of each leaf: a share if below 1, else a count

    def __post_init__(self):
        if not is_number(self.k) or not (0 < self.k < 1 or (self.k >= 1 and self.k == self.k // 1)):
            raise ValueError(
                f"k must be a share below 1 or a whole number of at least 1; got {shown(self.k)}."
            )

    @property
    def sends_all(self):
        return False

    def check(self, shape):
        if self.k > math.prod(shape):
            raise ValueError(
                f"k must not be above the size of a leaf; got k={self.k:g} for one of shape "
                f"{shape}. A share, as k=0.1, fits every leaf."
            )

    def kept(self, size: int) -> int:
        """Return how many numbers of a leaf of this size are sent."""
        return math.ceil(self.k * size) if self.k < 1 else int(self.k)

    @abc.abstractmethod
    def chosen(self, flat: Any, index: Any, salt: int) -> Any:
        """Return a mask of the numbers of a leaf that are sent."""

    def approximate(self, a, index, salt):
        flat = a.reshape(-1)
        return (self.chosen(flat, index, salt) * flat).reshape(a.shape)

    def encode(self, a, index, salt):
        flat = a.reshape(-1)
        chosen = self.chosen(flat, index, salt)
        return self.write_places(chosen) + raw(flat[chosen], a.dtype)

    def decode(self, blob, shape, dtype, index, salt):
        out = np.zeros(math.prod(shape), dtype)
        chosen, values = self.read_places(blob, out, index, salt)
        out[chosen] = from_raw(values, dtype)
        return out.reshape(shape)

    def write_places(self, chosen: np.ndarray) -> bytes:
        """Write the places of the numbers, if the receiver does not know them."""
        del chosen
        return b""

    def read_places(
        self, blob: bytes, like: np.ndarray, index: int, salt: int
    ) -> tuple[np.ndarray, bytes]:
        """Return a mask of the numbers that were sent, and the bytes after their places."""
        return self.chosen(like, index, salt), blob


@COMPRESSORS.register("top_k")
@dataclass(frozen=True)
class TopK(Sparse):
    """Send the k numbers of largest absolute value of each leaf, and their places."""

    def chosen(self, flat, index, salt):
        del index, salt
        return largest(abs(flat), self.kept(flat.shape[0]))

    def load(self, shape, plain):
        count = self.kept(plain.numbers)
        return Load(count, plain.width, plain.beside + self._places(plain.numbers))

    def _places(self, size: int) -> int:
        """Count the bits of places: one place for each, or one bit per number if that is less."""
        return min(self.kept(size) * (size - 1).bit_length(), size)

    def write_places(self, chosen):
        size = len(chosen)
        if self._places(size) == size:
            return pack(chosen, 1)
        return pack(np.flatnonzero(chosen), (size - 1).bit_length())

    def read_places(self, blob, like, index, salt):
        size, count = len(like), self.kept(len(like))
        end = bytes_of(self._places(size), 1)
        if self._places(size) == size:
            chosen = unpack(blob[:end], size, 1, 1).astype(bool)
        else:
            places = unpack(blob[:end], count, (size - 1).bit_length(), size - 1)
            if (np.diff(places) <= 0).any():
                raise ValueError("places are not in order")
            chosen = np.zeros(size, bool)
            chosen[places] = True
        if chosen.sum() != count:
            raise ValueError(f"it has {chosen.sum()} numbers, not {count}")
        return chosen, blob[end:]


@COMPRESSORS.register("random_k")
@dataclass(frozen=True)
class RandomK(Sparse):
    """Send k numbers of each leaf, drawn anew in every round.

    All clients send the same ones, so that places need not be sent.
    """

    def chosen(self, flat, index, salt):
        count = flat.shape[0]
        return largest(uniform(flat, count, index, salt), self.kept(count))

    def load(self, shape, plain):
        return Load(self.kept(plain.numbers), plain.width, plain.beside)


def largest(scores: Any, count: int) -> Any:
    """Return a mask of the `count` largest scores; of equal ones the last are taken."""
    ranks = scores.argsort(stable=True).argsort(stable=True)
    return ranks >= scores.shape[0] - count

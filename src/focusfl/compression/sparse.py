"""The base of compressors that send some of the numbers."""

import abc
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.compression.compressor import Compressor
from focusfl.compression.packing import from_raw, raw
from focusfl.core.validation import is_number, shown


@dataclass(frozen=True)
class Sparse(Compressor):
    """Base of compressors that send k numbers of each leaf in full, and none of the others."""

    k: float | int = 0.1  # numbers of each leaf: a share if below 1, else a count

    def __post_init__(self):
        check_kept(self.k)

    @property
    def sends_all(self):
        return False

    def check(self, shape):
        check_enough(self.k, shape, math.prod(shape))

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


def largest(scores: Any, count: int) -> Any:
    """Return a mask of the `count` largest scores; of equal ones the last are taken."""
    ranks = scores.argsort(stable=True).argsort(stable=True)
    return ranks >= scores.shape[0] - count


def check_kept(k: Any) -> None:
    """Raise ValueError unless k is a share below 1 or a whole number of at least 1."""
    if not is_number(k) or not (0 < k < 1 or (k >= 1 and k == k // 1)):
        raise ValueError(
            f"k must be a share below 1 or a whole number of at least 1; got {shown(k)}."
        )


def check_enough(k: Any, shape: tuple[int, ...], size: int) -> None:
    """Raise ValueError if more numbers would be sent than a leaf has."""
    if k > size:
        raise ValueError(
            f"k must not be above the size of a leaf; got k={k:g} for one of shape "
            f"{shape}. A share, as k=0.1, fits every leaf."
        )

"""What compressors that send some of the numbers share."""

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
    """Send k numbers of each leaf as they are, and none of the others."""

    k: float | int = 0.1  # of each leaf's numbers: which share, or how many if >= 1

    def __post_init__(self):
        check_kept(self.k)

    @property
    def sends_all(self):
        return False

    def check(self, shape):
        check_enough(self.k, shape, math.prod(shape))

    def kept(self, size: int) -> int:
        """How many numbers of a leaf are sent."""
        return math.ceil(self.k * size) if self.k < 1 else int(self.k)

    @abc.abstractmethod
    def chosen(self, flat: Any, index: Any, salt: int) -> Any:
        """Whether each number of a leaf is sent."""

    def approximate(self, a, index, salt):
        flat = a.reshape(-1)
        return (self.chosen(flat, index, salt) * flat).reshape(a.shape)

    def encode(self, a, index, salt):
        flat = a.reshape(-1)
        chosen = self.chosen(flat, index, salt)
        return self.write_places(chosen) + raw(flat[chosen], a.dtype)

    def decode(self, blob, shape, dtype, index, salt):
        found = np.zeros(math.prod(shape), dtype)
        chosen, values = self.read_places(blob, found, index, salt)
        found[chosen] = from_raw(values, dtype)
        return found.reshape(shape)

    def write_places(self, chosen: np.ndarray) -> bytes:
        """Where the numbers are, if that must be told."""
        del chosen
        return b""

    def read_places(
        self, blob: bytes, like: np.ndarray, index: int, salt: int
    ) -> tuple[np.ndarray, bytes]:
        """Which of these numbers were sent, and the bytes behind."""
        return self.chosen(like, index, salt), blob


def largest(scores: Any, count: int) -> Any:
    """Whether each of these is among the largest, so many; of equal ones, the last."""
    ranks = scores.argsort(stable=True).argsort(stable=True)
    return ranks >= scores.shape[0] - count


def check_kept(k: Any) -> None:
    """Raise unless k is how many numbers are kept, or which share of them."""
    if not is_number(k) or not (0 < k < 1 or (k >= 1 and k == k // 1)):
        raise ValueError(
            f"k must be a share below 1 or a whole number of at least 1; got {shown(k)}."
        )


def check_enough(k: Any, shape: tuple[int, ...], size: int) -> None:
    """Raise if more numbers would be kept than there are."""
    if k > size:
        raise ValueError(
            f"k must not be above the size of a leaf; got k={k:g} for one of shape "
            f"{shape}. A share, as k=0.1, fits every leaf."
        )

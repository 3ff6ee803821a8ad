"""Pseudorandom numbers that follow from the round, the same on every machine.

They are computed from small whole numbers, which no array library rounds or overflows.
"""

from typing import Any

import numpy as np

HALF = 0xFFFF
TURNS = (0x6D2B, 0x3C6F, 0x52A9, 0x1B87, 0x7A35, 0x4E1D)  # odd, below 2^15


def uniform(like: Any, count: int, index: Any, salt: int) -> Any:
    """Draw `count` numbers in [0, 1), of the library and dtype of `like`.

    Number j is computed from j, the index of the round and the salt by a Feistel network.
    """
    places = np.arange(count, dtype=np.int32)
    left = (places >> 16) ^ (index & HALF) ^ (salt & HALF)
    right = (places & HALF) ^ ((index >> 16) & HALF) ^ ((salt >> 16) & HALF)
    for turn in TURNS:
        mixed = right * turn + (salt & 0xFF)  # below 2^31
        left, right = right, left ^ ((mixed ^ (mixed >> 9)) >> 7 & HALF)
    return as_like(like, ((left << 8) + (right >> 8)) / 2**24)


def as_like(like: Any, values: Any) -> Any:
    """Convert NumPy numbers to the library and dtype of `like`; torch does not mix with NumPy."""
    if hasattr(like, "new_tensor"):
        return like.new_tensor(values)
    return values.astype(like.dtype)


def between(a: Any, most: int) -> Any:
    """Clip numbers to [-most, most]; NaN stays NaN."""
    top = 0 * a + most  # in the dtype of `a`
    inside = (a <= most) & (a >= -most)
    return inside * a + (a > most) * top - (a < -most) * top

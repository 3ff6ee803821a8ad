"""Checks that compressors share."""

from numbers import Integral
from typing import Any

from focusfl.core.validation import is_number, shown


def check_bits(name: str, bits: Any, least: int, most: int) -> None:
    """Raise unless this is a number of bits, not fewer and not more than these."""
    whole = isinstance(bits, Integral) and not isinstance(bits, bool)
    if not whole or not least <= bits <= most:
        raise ValueError(
            f"{name} must be a whole number from {least} to {most}; got {shown(bits)}."
        )


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

"""Whole numbers of few bits as bytes, and back, by NumPy alone.

Bytes that were not written here raise ValueError when they are read.
"""

from typing import Any

import numpy as np


def pack(codes: Any, bits: int) -> bytes:
    """Write numbers from 0 to 2^bits - 1 one after the other, `bits` bits each."""
    kind = _kind(bits)
    codes = np.ascontiguousarray(codes).reshape(-1).astype(kind)
    each = codes.view(np.uint8).reshape(-1, kind.itemsize)
    return np.packbits(np.unpackbits(each, axis=1)[:, -bits:]).tobytes()


def unpack(blob: bytes, count: int, bits: int, most: int) -> np.ndarray:
    """Read `count` numbers.

    Raises:
        ValueError: If the length is another, or a number is above `most`.
    """
    if len(blob) != bytes_of(count, bits):
        raise ValueError(f"it has {len(blob)} bytes, not {bytes_of(count, bits)}")
    stream = np.unpackbits(np.frombuffer(blob, np.uint8))
    if stream[count * bits :].any():
        raise ValueError("bits are set behind the last number")
    kind = _kind(bits)
    each = np.zeros((count, 8 * kind.itemsize), np.uint8)
    each[:, -bits:] = stream[: count * bits].reshape(count, bits)
    codes = np.packbits(each, axis=1).reshape(-1).view(kind).astype(np.int64)
    if codes.size and codes.max() > most:
        raise ValueError(f"a number is {codes.max()}, above {most}")
    return codes


def pack_signed(whole: Any, bits: int) -> bytes:
    """Write whole numbers of either sign, clipped to 2^(bits - 1) - 1."""
    most = 2 ** (bits - 1) - 1
    return pack(np.clip(np.asarray(whole, np.float64), -most, most) + most, bits)


def unpack_signed(blob: bytes, count: int, bits: int) -> np.ndarray:
    """Read `count` whole numbers of either sign."""
    most = 2 ** (bits - 1) - 1
    return unpack(blob, count, bits, 2 * most) - most


def bytes_of(count: int, bits: int) -> int:
    """Return how many bytes `count` numbers of `bits` bits take."""
    return -(-count * bits // 8)


def raw(a: Any, dtype: Any) -> bytes:
    """Write numbers of a dtype in full, little-endian."""
    return np.asarray(a).astype(_little(dtype)).tobytes()


def from_raw(blob: bytes, dtype: Any) -> np.ndarray:
    """Read what `raw` wrote."""
    return np.frombuffer(blob, _little(dtype)).astype(dtype)


def _kind(bits: int) -> np.dtype:
    """Return NumPy's narrowest unsigned type of at least `bits` bits, big-endian."""
    widths = (">u1", 8), (">u2", 16), (">u4", 32), (">u8", 64)
    return np.dtype(next(kind for kind, width in widths if bits <= width))


def _little(dtype: Any) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")

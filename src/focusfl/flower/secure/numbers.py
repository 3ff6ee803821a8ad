"""Pushes as whole numbers modulo 2^64, and sums of them as pushes."""

from typing import Any

import numpy as np

from focusfl.compression import FixedPoint
from focusfl.core import Message, tree
from focusfl.flower.protocol.messages import paths


def to_numbers(up: dict[str, np.ndarray], compressor: FixedPoint) -> np.ndarray:
    """A push, its arrays by path, as whole numbers in the order of the paths."""
    parts = [np.ravel(np.asarray(up[path], float)) for path in sorted(up)]
    whole = np.concatenate(parts) * 2.0**compressor.fraction
    numbers = whole.astype("<i8")
    if not np.array_equal(numbers, whole):
        raise ValueError(
            f"a push is not made of multiples of 2^-{compressor.fraction}, of {compressor.bits} "
            "bits: it does not come from this compressor."
        )
    return numbers.view("<u8")


def to_push(numbers: np.ndarray, like: Message, compressor: FixedPoint) -> Message:
    """A sum of such numbers as a push, in the shapes and dtypes of one."""
    row = numbers.view("<i8").astype(float) * 2.0**-compressor.fraction
    found, start = {}, 0
    for path, leaf in sorted(paths(like), key=_path):
        part = row[start : start + leaf.size]
        found[path], start = (
            part.reshape(leaf.shape).astype(leaf.dtype),
            start + leaf.size,
        )
    parts = iter([found[path] for path, _ in paths(like)])
    return tree.map(lambda _: next(parts), like)


def _path(pair: tuple[str, Any]) -> str:
    return pair[0]

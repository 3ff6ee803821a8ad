"""Everybody's data as one array, for problems that work on all clients at once."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from focusfl.core.validation import shown
from focusfl.data.partition import Parts


class Stacked(NamedTuple):
    arrays: tuple[Shaped[np.ndarray, "clients rows ..."], ...]  # 0 where there is none
    mask: Bool[np.ndarray, "clients rows"]  # where there is a sample
    lengths: Int[np.ndarray, " clients"]


def stack(parts: Parts, *arrays: Shaped[np.ndarray, "samples ..."]) -> Stacked:
    """Lay out each client's rows of some arrays, padded to the client with the most."""
    if not isinstance(parts, list | tuple) or not all(
        isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "iu"
        for part in parts
    ):
        raise ValueError(
            "parts must be a list with an array of sample numbers for each client; "
            f"got {shown(parts)}."
        )
    sizes = {len(array) for array in arrays}
    first = min((int(part.min(initial=0)) for part in parts), default=0)
    last = max((int(part.max(initial=-1)) for part in parts), default=-1)
    if len(sizes) != 1 or last >= min(sizes) or first < 0:
        raise ValueError(
            "arrays must have a row per sample, equally many each; got "
            f"{[len(array) for array in arrays]} rows for parts that reach from sample "
            f"{first} to {last}."
        )
    if not parts or not all(map(len, parts)):
        raise ValueError(
            "parts must have samples for every client; got "
            f"{[len(part) for part in parts]}. Leave clients without data out."
        )
    lengths = np.array([len(part) for part in parts])
    mask = np.arange(lengths.max()) < lengths[:, None]
    samples = np.concatenate(parts)
    padded = []
    for array in arrays:
        out = np.zeros((*mask.shape, *array.shape[1:]), array.dtype)
        out[mask] = array[samples]
        padded.append(out)
    return Stacked(tuple(padded), mask, lengths)

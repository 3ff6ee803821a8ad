"""Samples of one's own, out of an .npz file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from focusfl.core.validation import check_finite, numeric, shown
from focusfl.data.digits import Samples


def read_samples(path: str | Path) -> Samples:
    """Read arrays x, (samples, ...), and y, a label each, of an .npz file.

    Labels number classes from 0, without a gap. An array `client` says who has each
    sample, by numbers or words.

    Raises:
        ValueError: If the file is not there, or its arrays do not fit each other.
    """
    if not isinstance(path, str | Path):
        raise ValueError(f"cannot read {shown(path)}: path must be the name of a file.")
    arrays = _arrays(path)
    if not {"x", "y"} <= arrays.keys():
        raise ValueError(f"{path} must hold arrays x and y; got {', '.join(arrays) or 'none'}.")
    return samples_of(str(path), arrays["x"], arrays["y"], arrays.get("client"))


def samples_of(where: str, x: Any, y: Any, client: Any = None) -> Samples:
    """Check features, labels and who has each sample; `where` they are from.

    Raises:
        ValueError: If they do not fit each other, or labels are no whole numbers.
    """
    x, y = numeric(f"{where}: x", x), numeric(f"{where}: y", y)
    if x.dtype != np.uint8:  # jax would cut longer whole numbers off
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
    check_finite(f"{where}: x", x, ("sample",))
    if x.ndim < 2 or not len(x) or y.shape != x.shape[:1]:
        raise ValueError(
            f"{where}: x must be (samples, ...) and y one label each; got shapes "
            f"{x.shape} and {y.shape}."
        )
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= len(y):
        raise ValueError(
            f"{where}: y must be whole numbers from 0, one for each class; got "
            f"{y.min()} to {y.max()} of {y.dtype}, and {len(y)} samples."
        )
    unused = np.setdiff1d(np.arange(y.max()), y)
    if unused.size:
        raise ValueError(
            f"{where}: y must number classes from 0 without a gap; got "
            f"{len(np.unique(y))} labels from {y.min()} to {y.max()}, and none is "
            f"{unused[0]}. Number them anew: y = np.unique(y, return_inverse=True)[1]."
        )
    if client is not None and client.shape != y.shape:
        raise ValueError(
            f"{where}: client must be one entry for each of {len(y)} samples; got "
            f"shape {client.shape}."
        )
    return Samples(x, y.astype(np.int32), client)


def unpacked(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read the arrays of these names, of an .npz file that must have them all."""
    arrays = _arrays(path)
    if absent := [name for name in names if name not in arrays]:
        raise ValueError(f"{path} must hold {', '.join(names)}; {', '.join(absent)} is missing.")
    return [arrays[name] for name in names]


def _arrays(path: str | Path) -> dict[str, np.ndarray]:
    try:
        with open(path, "rb") as file, np.load(file) as found:
            return {name: found[name] for name in found.files}
    except (OSError, EOFError, TypeError, ValueError, AttributeError, BadZipFile) as e:
        reason = getattr(e, "strerror", None) or str(e).split("\n")[0].rstrip(".")
        raise ValueError(f"cannot read {path} as an .npz file: {reason}.") from None

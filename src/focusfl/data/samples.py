"""Samples: arrays from the user's files and tables, and the digits of scikit-learn."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from focusfl.core.extras import missing
from focusfl.core.validation import check_finite, numeric, shown, unknown

DIGITS = "datasets/data/digits.csv.gz"  # in the package sklearn


class Samples(NamedTuple):
    """Features and labels of samples, and which client has each."""

    x: Shaped[np.ndarray, "samples ..."]
    y: Shaped[np.ndarray, " samples"]  # 0 to classes - 1; numbers in a regression
    client: Shaped[np.ndarray, " samples"] | None = None  # None: not known


def digits() -> Samples:
    """Load 1,797 handwritten digits, (1797, 8, 8, 1) of 0 to 16, from scikit-learn.

    Alpaydin and Kaynak 1998,
    https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits

    Raises:
        ValueError: If scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")  # importing it is slow
    folder = package and package.origin and Path(package.origin).parent
    if not folder or not (folder / DIGITS).is_file():
        raise ValueError(missing("the data set digits needs", "scikit-learn", "digits"))
    table = np.loadtxt(folder / DIGITS, delimiter=",", dtype=np.uint8)
    return Samples(table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1].astype(np.int32))


def read_samples(path: str | Path) -> Samples:
    """Read samples from an .npz file of the user's.

    Args:
        path: of a file with arrays x, (samples, ...), and y, (samples,), labels that number
            classes from 0 without a gap. An array `client`, (samples,), of numbers or words
            may say which client has each sample.

    Raises:
        ValueError: If the file cannot be read, or its arrays do not fit each other.
    """
    if not isinstance(path, str | Path):
        raise ValueError(f"cannot read {shown(path)}: path must be the name of a file.")
    arrays = _arrays(path)
    if not {"x", "y"} <= arrays.keys():
        raise ValueError(f"{path} must hold arrays x and y; got {', '.join(arrays) or 'none'}.")
    return samples_of(str(path), arrays["x"], arrays["y"], arrays.get("client"))


def samples_of(where: str, x: Any, y: Any, client: Any = None) -> Samples:
    """Check features, labels and the client of each sample.

    Args:
        where: what messages call their source.
        x: features, (samples, ...).
        y: labels, (samples,).
        client: of each sample, (samples,), where that is known.

    Raises:
        ValueError: If they do not fit each other, or labels are not whole numbers from 0.
    """
    x, y = numeric(f"{where}: x", x), numeric(f"{where}: y", y)
    if x.dtype != np.uint8:  # jax would truncate longer whole numbers
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
    """Read arrays by name from an .npz file, which must have all of them."""
    arrays = _arrays(path)
    if absent := [name for name in names if name not in arrays]:
        raise ValueError(f"{path} must hold {', '.join(names)}; {', '.join(absent)} is missing.")
    return [arrays[name] for name in names]


def _arrays(path: str | Path) -> dict[str, np.ndarray]:
    try:
        with open(path, "rb") as file, np.load(file) as arrays:
            return {name: array_of(arrays, name) for name in arrays.files}
    except Exception as error:  # a damaged file can make a reader raise anything
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0].rstrip(".")
        raise ValueError(f"cannot read {path} as an .npz file: {reason}.") from None


def array_of(arrays: Any, name: str) -> np.ndarray:
    """Read one array of an open .npz file; of what has no array NumPy gives the bytes."""
    if not isinstance(array := arrays[name], np.ndarray):
        raise ValueError(f"{name} in it is no array")
    return array


def arrays_of(
    dataset: Any, columns: Sequence[str] | Mapping[str, str] | None = None
) -> dict[str, Shaped[np.ndarray, "samples ..."]]:
    """Read columns of a `datasets.Dataset`, such as a partition of flwr-datasets, as arrays.

    Args:
        dataset: one split or partition.
        columns: their names; or a mapping to them from other names, such as
            {"x": "img", "y": "label"}; None: all columns.

    Returns:
        Arrays (samples, ...) by name, in the types that the data set has for NumPy: mostly
        float32.

    Raises:
        ValueError: If `dataset` is something else, or a column is missing or not numbers of
            one shape.
    """
    known = getattr(dataset, "column_names", None)
    if not isinstance(known, list):
        raise ValueError(
            "dataset must be a datasets.Dataset, one split or partition of it; got "
            f"{type(dataset).__name__}."
        )
    if columns is not None and not isinstance(columns, Mapping | list | tuple):
        raise ValueError(f"columns must be a list of names; got {shown(columns)}.")
    columns = columns or known
    names = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    for name in names.values():
        if name not in known:
            raise ValueError(unknown("column", name, known))
    table = dataset.with_format("numpy", columns=list(names.values()))[:]
    arrays = {name: table[column] for name, column in names.items()}
    for name, array in arrays.items():
        kind = getattr(array, "dtype", np.dtype(object))
        if kind.kind not in "biuf":
            raise ValueError(
                f"column {names[name]!r} must be numbers, of one shape for all; "
                f"got {kind}. Name the others in columns."
            )
    return arrays

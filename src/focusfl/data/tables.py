"""Binary classification from the LIBSVM collection.

https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.core.validation import check_fits, check_one_of, shown
from focusfl.data.places import Place, find
from focusfl.data.samples import unpacked

# Columns of each set: not every part of a set has every feature.
SETS = {"a9a": 123, "a9a_t": 123, "w8a": 300, "mushrooms": 112, "phishing": 68}
# Rows of phishing have length 1, of 30 equal entries, which the text rounds to 0.18257.
# Here they have single precision, as in libsvm_binary.npz.
PHISHING = float(np.float32(30**-0.5))
MAX_DIGITS = 18  # of a column's number


class Table(NamedTuple):
    x: Float[np.ndarray, "rows dim"]
    y: Float[np.ndarray, " rows"]  # -1 or 1


def libsvm(name: str, data_dir: Place = None) -> Table:
    """Load a9a, a9a_t, w8a, mushrooms or phishing, as dense rows.

    From the text file of the collection, or from libsvm_binary.npz, which has them all.

    Raises:
        ValueError: If there is no such set, or its file is damaged or cannot be had.
    """
    check_one_of("name", name, SETS)
    (path,) = find(name, data_dir)
    if path.suffix != ".npz":
        table = read_libsvm_text(path, SETS[name])
        return table._replace(x=PHISHING * (table.x > 0)) if name == "phishing" else table
    parts = [f"{name}_{part}" for part in ("y", "indptr", "indices", "dim", "value")]
    y, starts, columns, dim, value = unpacked(path, parts)
    x = np.zeros((len(y), int(dim)))
    x[np.repeat(np.arange(len(y)), np.diff(starts)), columns] = value
    return Table(x, y.astype(float))


def read_libsvm_text(path: str | Path, dim: int | None = None) -> Table:
    """Read a file with lines like `+1 3:0.5 7:1`, columns counted from 1.

    `dim` is the number of columns; by default the last one that occurs. Of two labels
    other than -1 and 1 the smaller becomes -1.
    """
    if not isinstance(path, str | Path):
        raise ValueError(f"cannot read {shown(path)}: path must be the name of a file.")
    labels: list[float] = []
    rows, columns, values = [], [], []
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path} as LIBSVM text: {error}.") from None
    for number, line in enumerate(lines, 1):
        label, *pairs = line.partition("#")[0].split() or [""]
        if not label:
            continue
        where = f"{path}, line {number}"
        last = 0
        for pair in pairs:
            column, value = _pair(pair, where)
            if not last < column <= (dim or column):
                raise ValueError(
                    f"{where}: columns must increase from 1"
                    + f" to {dim}" * bool(dim)
                    + f"; got {column} after {last}."
                )
            rows.append(len(labels))
            columns.append(column - 1)
            values.append(value)
            last = column
        labels.append(_number(label, f"{where}: the label"))
    if not labels:
        raise ValueError(f"{path} must have a line per sample; got an empty file.")
    dim = dim or max(columns, default=-1) + 1
    check_fits(f"{path} of {dim} columns", len(labels) * dim, "a file of fewer")
    x = np.zeros((len(labels), dim))
    x[rows, columns] = values
    return Table(x, _signs(np.array(labels), path))


def _pair(pair, where):
    column, colon, value = pair.partition(":")
    if not colon or not column.isdecimal() or len(column) > MAX_DIGITS:
        raise ValueError(f"{where}: entries must look like 3:0.5; got {pair!r}.")
    return int(column), _number(value, f"{where}: the value of column {column}")


def _number(text, what):
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(f"{what} must be a number; got {text!r}.")
    return number


def _signs(labels, path):
    kinds = np.unique(labels)
    if np.all(np.isin(kinds, (-1, 1))):
        return labels
    if np.all(np.isin(kinds, (0, 1))):
        return 2 * labels - 1
    if len(kinds) != 2:
        raise ValueError(
            f"{path} must have two labels, such as -1 and 1; got "
            f"{np.array2string(kinds, threshold=8)}."
        )
    return np.where(labels == kinds[1], 1.0, -1.0)

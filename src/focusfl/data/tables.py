"""Binary classification from the LIBSVM collection.

https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/
"""

from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float

from focusfl.checks import check_one_of, shown
from focusfl.data.places import Place, find

HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
FILE = "libsvm_binary.npz"


class _Set(NamedTuple):
    file: str  # its name in the collection
    dim: int  # not every part of a set has every feature


SETS = {
    "a9a": _Set("a9a", 123),
    "a9a_t": _Set("a9a.t", 123),
    "w8a": _Set("w8a", 300),
    "mushrooms": _Set("mushrooms", 112),
    "phishing": _Set("phishing", 68),
}


class Table(NamedTuple):
    x: Float[np.ndarray, "rows dim"]
    y: Float[np.ndarray, " rows"]  # -1 or 1


def libsvm(name: str, data_dir: Place = None) -> Table:
    """Load a9a, a9a_t, w8a, mushrooms or phishing, as dense rows.

    From libsvm_binary.npz, or from the text file of the collection.
    """
    check_one_of("name", name, SETS)
    text, dim = SETS[name]
    how = f"The text file is at {HOME}."
    (path,) = find(name, [[FILE], [text]], how, data_dir)
    if path.name != FILE:
        return read_libsvm_text(path, dim)
    parts = [f"{name}_{part}" for part in ("y", "indptr", "indices", "dim", "value")]
    try:
        with np.load(path) as file:
            y, starts, columns, dim, value = (file[part] for part in parts)
    except (OSError, EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
        raise ValueError(
            f"cannot read {path} as an .npz file that holds {', '.join(parts)}: "
            f"{error}."
        ) from None
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
    x = np.zeros((len(labels), dim or max(columns, default=-1) + 1))
    x[rows, columns] = values
    return Table(x, _signs(np.array(labels), path))


def _pair(pair, where):
    column, colon, value = pair.partition(":")
    if not colon or not column.isdecimal():
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

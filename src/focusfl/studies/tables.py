"""Columns of runs as tidy tables of Arrow, and those as Parquet files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.core.files import Damaged, renamed

if TYPE_CHECKING:
    import pyarrow as pa

IDENTITY = ("participation", "algorithm", "lr", "local_steps", "seed")  # of a run
Columns = Mapping[str, np.ndarray]
_ABOUT = b"focusfl"  # among the metadata of a table


def tidy(parts: list[tuple[dict[str, Any], Columns]]) -> "pa.Table":
    """Put columns of several runs one below the other, with what tells runs apart."""
    import pyarrow as pa

    tables = []
    for row, columns in parts:
        whole = pa.table({name: column(values) for name, values in columns.items()})
        for place, name in enumerate(IDENTITY):
            whole = whole.add_column(place, name, repeated(row[name], len(whole)))
        tables.append(whole)
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()


def columns_of(table: "pa.Table") -> dict[str, np.ndarray]:
    """The columns of a table, by name."""
    return {name: _values(table[name].combine_chunks()) for name in table.column_names}


def _values(array: "pa.Array") -> np.ndarray:
    """What `column` was made of; numbers and words without pandas, as there."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type) and not array.null_count:
        words = np.array(array.dictionary.to_pylist(), object)
        return words[_values(array.indices)]
    number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if not number or array.null_count or not len(array):
        return array.to_numpy(zero_copy_only=False)
    kind = np.dtype(array.type.to_pandas_dtype())
    start = array.offset * kind.itemsize
    return np.frombuffer(array.buffers()[1], kind, len(array), start)


def write_table(path: Path, table: "pa.Table", about: str = "") -> None:
    """Write a table, with words about it among its metadata."""
    import pyarrow.parquet as pq

    table = table.replace_schema_metadata({_ABOUT: about} if about else None)
    with renamed(path) as part:
        pq.write_table(table, part, compression="zstd")


def read_table(path: Path, content: bytes) -> tuple["pa.Table", str | None]:
    """Read the content of a file that `write_table` wrote: the table, and the words about it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(pa.BufferReader(content)).read()
        about = (table.schema.metadata or {}).get(_ABOUT)
        return table, about and about.decode()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(f"{path} is damaged, or no table ({error})") from None


def repeated(value: Any, times: int) -> "pa.Array":
    """A column of one value; a word is written once."""
    import pyarrow as pa

    if not isinstance(value, str):
        return column(np.full(times, value))
    text = value.encode()
    ends, letters = (pa.py_buffer(a) for a in (np.array([0, len(text)], "i4"), text))
    word = pa.StringArray.from_buffers(1, ends, letters)
    return pa.DictionaryArray.from_arrays(column(np.zeros(times, "i4")), word)


def column(values: np.ndarray) -> "pa.Array":
    """One column of a table. Numbers are taken as they are in memory: to look at them,
    Arrow would import pandas, for a third of a second."""
    import pyarrow as pa

    values = np.ascontiguousarray(values)
    if values.dtype.kind not in "fiu":
        return pa.array(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

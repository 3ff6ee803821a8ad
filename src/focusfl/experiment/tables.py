"""Columns of runs as tables of Arrow, tidy: every row says whose it is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

IDENTITY = ("participation", "algorithm", "lr", "local_steps", "seed")  # of a run

Columns = Mapping[str, np.ndarray]


def tidy(parts: list[tuple[dict[str, Any], Columns]]) -> "pa.Table":
    """Columns of several runs one below the other, with what tells runs apart."""
    import pyarrow as pa

    tables = []
    for row, columns in parts:
        whole = _table(columns)
        for place, name in enumerate(IDENTITY):
            value = pa.repeat(row[name], len(whole))
            text = isinstance(row[name], str)
            whole = whole.add_column(
                place, name, value.dictionary_encode() if text else value
            )
        tables.append(whole)
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


def columns_of(table: "pa.Table") -> dict[str, np.ndarray]:
    """The columns of a table, by name."""
    return {
        name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names
    }


def _table(columns: Columns) -> "pa.Table":
    import pyarrow as pa

    return pa.table({name: np.asarray(values) for name, values in columns.items()})

"""Tables of Arrow, written and read without what Arrow would look at them with."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from focusfl.studies.tables import column, columns_of, repeated

WITHOUT_PANDAS = """
import sys
from pathlib import Path
import numpy as np
from focusfl.studies.tables import columns_of, read_table, tidy, write_table
run = dict(participation="some", algorithm="focus", lr=0.1, local_steps=2, seed=0)
table = tidy([(run | {"seed": seed}, {"loss": np.arange(3.0)}) for seed in range(2)])
write_table(Path(sys.argv[1]), table)
path = Path(sys.argv[1])
found = columns_of(read_table(path, path.read_bytes())[0])
assert found["algorithm"].tolist() == ["focus"] * 6 and found["lr"].sum() == 0.6
assert found["seed"].tolist() == [0, 0, 0, 1, 1, 1]
assert found["loss"].tolist() == [0, 1, 2, 0, 1, 2]
assert "pandas" not in sys.modules
"""
PARTS = [np.arange(6.0), np.arange(6.0)[::2], np.array([1.0, np.nan, np.inf])]


@pytest.mark.parametrize(
    "values",
    [
        *PARTS, np.arange(5, dtype="i4"), np.arange(3, dtype="u1"), np.zeros(0),
        np.array([True, False, True]), np.array(["a", "", "µ"]),
        np.arange(3, dtype="f4"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_column_is_what_arrow_makes_of_it(values):
    whole = column(values)
    whole.validate(full=True)
    assert whole.type == pa.array(values).type and whole.null_count == 0
    np.testing.assert_array_equal(whole.to_numpy(zero_copy_only=False), values)
    table = pa.table({"x": pa.chunked_array([whole, whole])}).slice(1)
    found, wanted = columns_of(table)["x"], table["x"].to_numpy()
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("value", ["focus", "", "µ", 3, 0.5, True, None], ids=repr)
def test_a_value_is_repeated_as_arrow_does(value):
    wanted = pa.repeat(value, 4)
    if isinstance(value, str):
        wanted = wanted.dictionary_encode()
    found = repeated(value, 4)
    found.validate(full=True)
    assert found.equals(wanted) and len(repeated(value, 0)) == 0


def test_what_is_missing_stays_missing():
    table = pa.table({"x": pa.array([1.0, None]), "w": pa.array(["a", None])})
    table = table.set_column(1, "w", table["w"].dictionary_encode())
    found = columns_of(table)
    assert found["x"][0] == 1 and np.isnan(found["x"][1])
    assert found["w"].tolist() == ["a", None]


def test_pandas_is_not_imported(tmp_path):
    command = [sys.executable, "-c", WITHOUT_PANDAS, tmp_path / "x.parquet"]
    subprocess.run(command, check=True)

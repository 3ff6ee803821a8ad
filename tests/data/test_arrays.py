"""Client data out of the `datasets` package, as flwr-datasets deals it out."""

import numpy as np
import pytest

import focusfl as ff
from focusfl import data

datasets = pytest.importorskip("datasets")


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    x = 2 * np.eye(3, 4)[y] + rng.standard_normal((n, 4))
    features = datasets.Features(
        {
            "vector": datasets.Sequence(datasets.Value("float32"), length=4),
            "label": datasets.ClassLabel(names=["a", "b", "c"]),
            "note": datasets.Value("string"),
        }
    )
    rows = {"vector": x.tolist(), "label": y.tolist(), "note": ["?"] * n}
    return datasets.Dataset.from_dict(rows, features), x, y


def test_columns_come_as_arrays_under_the_names_asked_for():
    found, x, y = table()
    arrays = data.arrays_of(found, {"x": "vector", "y": "label"})
    assert list(arrays) == ["x", "y"] and arrays["x"].shape == (60, 4)
    assert np.array_equal(arrays["x"], x.astype(np.float32))
    assert np.array_equal(arrays["y"], y) and arrays["y"].dtype.kind == "i"
    assert list(data.arrays_of(found, ["label"])) == ["label"]
    assert list(data.arrays_of(found.remove_columns("note"))) == ["vector", "label"]


def test_partitions_train():
    found, _, _ = table()
    names = {"x": "vector", "y": "label"}
    clients = [data.arrays_of(found.shard(3, i), names) for i in range(3)]
    assert [len(client["y"]) for client in clients] == [20, 20, 20]
    eval_data = data.arrays_of(table(seed=1)[0], names)
    problem = ff.problems.softmax(
        clients, classes=3, eval_data=eval_data, batch_size=5, stream="fixed_order"
    )
    result = ff.simulate(
        ff.Focus(),
        problem,
        ff.participation.Uniform(2),
        rounds=100,
        lr=0.05,
        eval_every=50,
    )
    assert result.metrics["accuracy"][-1] > 0.75 > result.metrics["accuracy"][0]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: data.arrays_of(table()[0]), "column 'note' must be numbers, of one"),
        (lambda: data.arrays_of(table()[0], ["lable"]), "Did you mean 'label'"),
        (
            lambda: data.arrays_of(datasets.DatasetDict(train=table()[0])),
            "one split or partition of it; got DatasetDict",
        ),
        (lambda: data.arrays_of({"x": [1]}), "one split or partition of it; got dict"),
        (
            lambda: data.arrays_of(datasets.Dataset.from_dict({"x": [[1, 2], [3]]})),
            "column 'x' must be numbers, of one shape",
        ),
    ],
)
def test_what_is_no_array_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

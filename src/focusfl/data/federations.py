"""Natural federations: the samples of each client, for training and for tests."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Shaped

from focusfl.core.validation import check_count, check_share, is_number, shown, unknown
from focusfl.data.partition import hold_out
from focusfl.data.samples import Samples, samples_of

ClientSamples = dict[str, Shaped[np.ndarray, "_ ..."]]  # x and y of a client
Raw = dict[str, np.ndarray]


class Federation(NamedTuple):
    """The samples of all clients, dicts of x and y, in the order of the clients' names."""

    train: list[ClientSamples]
    test: list[ClientSamples]  # of the same clients
    names: tuple[str, ...]  # of the clients
    classes: tuple[str, ...]  # what labels 0, 1, ... stand for; () if y are numbers
    features: tuple[str, ...] = ()  # names of the columns of x, where they have some

    @property
    def tests(self) -> ClientSamples:
        """The test samples of all clients, in one set."""
        return {k: np.concatenate([samples[k] for samples in self.test]) for k in self.test[0]}


def federation(
    samples: Samples,
    is_test: Bool[np.ndarray, " samples"],
    names: Sequence[str],
    classes: Sequence[str],
    advice: str = "Fetch the data again.",
    features: Sequence[str] = (),
) -> Federation:
    """Make a federation of samples, which say their clients by number.

    Args:
        samples: of all clients.
        is_test: true for samples for tests.
        names: of the clients, by number.
        classes: what labels stand for; empty if y are numbers.
        advice: what a message says to do about a client without samples.
        features: names of the columns of x, where they have some.

    Raises:
        ValueError: If a client has no samples for training, or none for tests.
    """
    train: list[ClientSamples] = []
    test: list[ClientSamples] = []
    for i, name in enumerate(names):
        of_client = samples.client == i
        for sets, chosen in ((train, of_client & ~is_test), (test, of_client & is_test)):
            sets.append({"x": samples.x[chosen], "y": samples.y[chosen]})
        sizes = len(train[-1]["y"]), len(test[-1]["y"])
        if 0 in sizes:
            raise ValueError(
                f"every client must have samples for training and for tests; client "
                f"{shown(name)} has {sizes[0]} and {sizes[1]}. {advice}"
            )
    return Federation(train, test, tuple(names), tuple(classes), tuple(features))


def from_datasets(
    dataset: Any,
    by: str,
    x: str = "x",
    y: str = "y",
    *,
    tests: Any = 0.2,
    least: int = 1,
    seed: int = 0,
) -> Federation:
    """Make a client of each value in a column of a table, such as the author of a text.

    The table may be anything whose columns have names: a `datasets.Dataset` of Hugging Face
    or flwr-datasets, a pandas table, or a dict of arrays. None of these packages is required.

    Args:
        dataset: one split, such as "train".
        by: the column with the client of each sample, numbers or words.
        x: the column of features: numbers, of one shape for all samples.
        y: the column of labels: whole numbers from 0, or words.
        tests: the share of each client's samples that is for tests, drawn at random; or
            another split with the same columns and clients.
        least: leave out clients with fewer samples in `dataset`.
        seed: of which samples are for tests.

    Raises:
        ValueError: If a column is missing or of another kind, or a client would have no
            samples for training or for tests.
    """
    check_count("least", least)
    check_count("seed", seed, least=0)
    columns = {"client": by, "x": x, "y": y}
    table = _columns("dataset", dataset, columns)
    names, counts = np.unique(table["client"], return_counts=True)
    if is_number(tests):
        check_share("tests", tests, whole=False)
        is_test = hold_out(table["client"], tests, seed)
        advice = "Use another share for tests, or `least` to leave it out."
    else:
        other = _columns("tests", tests, columns)
        _check_alike(table, other)
        is_test = np.repeat([False, True], [len(table["y"]), len(other["y"])])
        advice = "Use `least` to leave it out."
        table = {k: np.concatenate([table[k], other[k]]) for k in table}
    labels, classes = _labels(dataset, y, table["y"])
    if not (counts >= least).any():
        raise ValueError(
            f"least must leave some clients; got {least}, and the largest of "
            f"{len(names)} has {counts.max()} samples."
        )
    names = names[counts >= least]
    number = {name: i for i, name in enumerate(names.tolist())}
    client = np.array([number.get(name, -1) for name in table["client"].tolist()])
    samples = samples_of("dataset", table["x"], labels, client)
    return federation(samples, is_test, [str(name) for name in names], classes, advice)


def _columns(what: str, given: Any, columns: dict[str, str]) -> Raw:
    """Read columns of a table as arrays, by the keys of `columns`."""
    known = getattr(given, "column_names", None)  # of `datasets`
    if known is None:
        known = getattr(given, "columns", None)  # of pandas
    if known is None and isinstance(given, Mapping):
        known = list(given)
    if known is None or isinstance(known, Mapping):  # all splits of `datasets`
        splits = f": one of {', '.join(known)}" if known else ""
        raise ValueError(
            f"{what} must be one table with named columns{splits}; got {type(given).__name__}."
        )
    for name in columns.values():
        if name not in list(known):
            raise ValueError(unknown(f"column of {what}", name, [*map(str, known)]))
    arrays = {key: _array(given, name) for key, name in columns.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        got = ", ".join(f"{len(arrays[k])} in {columns[k]!r}" for k in arrays)
        raise ValueError(f"columns of {what} must have equally many rows; got {got}.")
    if not len(arrays["y"]):
        raise ValueError(f"{what} must have samples; got none.")
    client = arrays["client"]
    if client.ndim != 1 or client.dtype.kind not in "biuUS":
        raise ValueError(
            f"column {columns['client']!r} of {what} must say whose a sample is, by "
            f"whole numbers or words; got {shown(client)} of {client.dtype}."
        )
    return arrays


def _array(given: Any, name: str) -> np.ndarray:
    """Read a column; one that is neither all numbers nor all words becomes empty objects."""
    if hasattr(given, "with_format"):
        column = given.with_format("numpy", columns=[name])[:][name]
    else:
        column = given[name]
    if isinstance(column, np.ndarray) and column.dtype.kind != "O":
        return column
    values = list(column)
    words = [isinstance(value, str) for value in values]
    try:
        if all(words) or not any(words):  # else NumPy would turn missing values into words
            return np.asarray(values)
    except ValueError:  # of differing lengths
        pass
    return np.empty(len(values), object)


def _check_alike(table: Raw, tests: Raw) -> None:
    """Raise ValueError unless a table of tests has samples and clients as the first one has."""
    shape, got = table["x"].shape[1:], tests["x"].shape[1:]
    if shape != got:
        raise ValueError(
            f"tests must have samples like those of dataset, of shape {shape}; got {got}."
        )
    strangers = set(tests["client"].tolist()) - set(table["client"].tolist())
    if strangers:
        raise ValueError(
            "tests must be of clients that have samples for training; got client "
            f"{shown(min(strangers))}, and {len(strangers)} such clients in all."
        )


def _labels(dataset: Any, name: str, y: np.ndarray) -> tuple[Any, list[str]]:
    """Return labels as whole numbers from 0, and what they stand for."""
    if y.dtype.kind in "US":
        words, labels = np.unique(y, return_inverse=True)
        return labels, words.tolist()
    features = getattr(dataset, "features", None) or {}
    classes = getattr(features.get(name), "names", None)
    count = int(y.max()) + 1 if y.dtype.kind in "iu" else 0
    return y, classes or [str(k) for k in range(count)]

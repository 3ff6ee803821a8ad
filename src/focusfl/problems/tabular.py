"""Logistic regression on real tables: LIBSVM sets dealt out, hospitals as they are."""

from typing import Any

import numpy as np

from focusfl import data
from focusfl.problems.logistic import Logistic


def libsvm(
    name: str = "a9a",
    num_clients: int = 32,
    split: str = "by_label",
    alpha: float = 0.1,
    rows: int | None = None,
    penalty: float = 0.01,
    seed: int = 0,
    data_dir: str | None = None,
) -> Logistic:
    """Deal a9a, w8a, mushrooms or phishing out to clients.

    `split` is by_label, iid or dirichlet (with `alpha`); `rows` takes so many of the
    data set at random instead of all.
    """
    table = data.libsvm(name, data_dir)
    x, y = table.x, table.y
    if rows is not None:
        if not num_clients <= rows <= len(y):
            raise ValueError(
                f"rows must lie between the number of clients, {num_clients}, and that "
                f"of rows in {name}, {len(y)}; got {rows}."
            )
        taken = data.iid(len(y), max(1, len(y) // rows), seed)[0][:rows]
        x, y = x[taken], y[taken]
    splits = {
        "by_label": lambda: data.by_label(y, num_clients),
        "iid": lambda: data.iid(len(y), num_clients, seed),
        "dirichlet": lambda: data.dirichlet(y, num_clients, alpha, seed),
    }
    if split not in splits:
        raise ValueError(f"split must be one of {sorted(splits)}; got {split!r}.")
    return logistic(x, y, splits[split](), penalty)


def heart_disease(penalty: float = 0.01, data_dir: str | None = None) -> Logistic:
    """Four hospitals, each with its own patients: who has a heart disease?"""
    table = data.heart_disease(data_dir, standardise=True)
    ones = np.ones((len(table.y), 1))  # an intercept, penalised like the rest
    x = np.concatenate([table.x, ones], axis=1)
    return logistic(x, 2.0 * table.y - 1, data.natural(table.center), penalty)


def logistic(x: np.ndarray, y: np.ndarray, parts: list, penalty: float) -> Logistic:
    """Logistic regression on rows dealt out by index; labels are +1 and -1."""
    stacked: Any = data.stack(parts, x, y)  # padded with zeros, which Logistic skips
    A, b = stacked.arrays
    return Logistic(A, b, penalty)

"""Convex problems on tables: LIBSVM data split over clients, and patients of hospitals."""

from typing import Any

import numpy as np

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_count, check_one_of, check_positive
from focusfl.problems.cox import Cox
from focusfl.problems.logistic import Logistic
from focusfl.problems.problem import Weights

TEST_SHARE = 0.25  # of the patients of every hospital
PARTS = ("all", "train", "test")


@PROBLEMS.register("libsvm")
def libsvm(
    name: str = "a9a",
    num_clients: int = 32,
    split: str = "by_label",
    alpha: float = 0.1,
    rows: int | None = None,
    penalty: float = 0.01,
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> Logistic:
    """Make logistic regression on a LIBSVM data set, with rows split over clients.

    Args:
        name: of the data set: a9a, a9a_t, w8a, mushrooms or phishing.
        num_clients: N.
        split: by_label, iid, dirichlet or dirichlet_balanced.
        alpha: of the Dirichlet splits; a smaller one is more uneven.
        rows: number of rows to draw from the data set; None: all.
        penalty: factor of |x|^2 / 2.
        seed: of the split and of the rows drawn.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing, or an argument is out of its range.
    """
    check_one_of("split", split, data.SPLITS)
    check_count("num_clients", num_clients)
    check_count("seed", seed, least=0)
    check_positive("alpha", alpha)
    check_positive("penalty", penalty)
    if rows is not None:
        check_count("rows", rows)  # before data are loaded
    x, y = data.libsvm(name, data_dir)
    if rows is not None:
        if not num_clients <= rows <= len(y):
            raise ValueError(
                f"rows must lie between the number of clients, {num_clients}, and that "
                f"of rows in {name}, {len(y)}; got {rows}."
            )
        sample = data.iid(len(y), max(1, len(y) // rows), seed)[0][:rows]
        x, y = x[sample], y[sample]
    parts = data.deal(y, split, num_clients, alpha, seed)
    return logistic(x, y, parts, penalty, weights)


@PROBLEMS.register("heart_disease")
def heart_disease(
    penalty: float = 0.01,
    missing: str = "drop",
    part: str = "all",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> Logistic:
    """Predict heart disease of the patients of four hospitals by logistic regression.

    Args:
        penalty: factor of |x|^2 / 2.
        missing: "drop" patients with missing values, or replace those by the "mean" of their
            hospital.
        part: "all" patients, "train" or "test".
        seed: of the patients for tests, a quarter of the ill and of the healthy ones of every
            hospital.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing, or an argument is out of its range.
    """
    _check(part, seed, penalty)
    table = data.heart_disease(data_dir, missing)
    test = data.hold_out(2 * table.center + (table.y > 0), TEST_SHARE, seed)
    chosen, x = _part(part, table.x, test)
    ones = np.ones((len(x), 1))  # an intercept, penalised like the rest
    x, y = np.concatenate([x, ones], axis=1), 2 * table.y - 1
    parts = data.natural(table.center[chosen])
    return logistic(x[chosen], y[chosen], parts, penalty, weights)


@PROBLEMS.register("tcga_brca")
def tcga_brca(
    penalty: float = 0.1,
    part: str = "all",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> Cox:
    """Predict survival with breast cancer of patients in six regions by Cox's model.

    Risk sets are those of a region.

    Args:
        penalty: factor of |x|^2 / 2.
        part: "all" patients, "train" or "test".
        seed: of the patients for tests.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "equal", or a number for each.

    Raises:
        ValueError: If data are missing, or an argument is out of its range.
    """
    _check(part, seed, penalty)
    table = data.tcga_brca(data_dir)
    test = data.hold_out(2 * table.region + table.event, TEST_SHARE, seed)
    return _cox(table, part, test, penalty, weights)


@PROBLEMS.register("dialysis")
def dialysis(
    penalty: float = 1e-3, part: str = "all", seed: int = 0, weights: Weights = None
) -> Cox:
    """Predict survival on dialysis in 67 centres, one client each, by Cox's model.

    Risk sets are those of a centre, so that the optimum is that of Cox's model stratified by
    centre on pooled data, with ties after Breslow and the same penalty.

    Args:
        penalty: factor of |x|^2 / 2, next to the log likelihood per death.
        part: "all" patients, "train" or "test".
        seed: of the patients for tests.
        weights: of clients: "equal", or a number for each.

    Raises:
        ValueError: If SurvSet is not installed, or an argument is out of its range.
    """
    _check(part, seed, penalty)
    table = data.dialysis(seed)
    return _cox(table, part, ~table.train, penalty, weights)


def _cox(
    table: data.Survival, part: str, test: np.ndarray, penalty: float, weights: Weights
) -> Cox:
    """Make Cox's model of a part of the patients, stratified by client."""
    chosen, x = _part(part, table.x, test)
    parts = data.natural(table.region[chosen])
    stacked: Any = data.stack(parts, x[chosen], table.time[chosen], table.event[chosen])
    A, time, event = stacked.arrays
    return Cox(A, time, event, penalty, stacked.mask, weights)


def _check(part: str, seed: int, penalty: float) -> None:
    """Check arguments before data are loaded, which may have to be downloaded."""
    check_one_of("part", part, PARTS)
    check_count("seed", seed, least=0)
    check_positive("penalty", penalty)


def _part(part: str, x: np.ndarray, test: np.ndarray):
    """Return which patients are in a part, and features standardised without test patients."""
    parts = dict(zip(PARTS, (np.ones(len(x), bool), ~test, test), strict=True))
    return parts[part], data.standardise(x, x if part == "all" else x[~test])


def logistic(
    x: np.ndarray, y: np.ndarray, parts: list, penalty: float, weights: Weights = None
) -> Logistic:
    """Make logistic regression on rows that are split over clients.

    Args:
        x: features, (rows, dim).
        y: labels +1 and -1, (rows,).
        parts: for each client the numbers of its rows.
        penalty: factor of |x|^2 / 2.
        weights: of clients: "samples", "equal", or a number for each.
    """
    stacked: Any = data.stack(parts, x, y)
    A, b = stacked.arrays
    return Logistic(A, b, penalty, stacked.mask, weights)

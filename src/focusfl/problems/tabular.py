"""Convex problems on real tables: LIBSVM sets dealt out, hospitals as they are."""

from typing import Any

import numpy as np

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_count, check_one_of, check_positive
from focusfl.problems.cox import Cox
from focusfl.problems.logistic import Logistic
from focusfl.problems.weights import Weights

TEST_SHARE = 0.25  # of every hospital's patients
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
    """Deal a9a, w8a, mushrooms or phishing out to clients.

    Args:
        name: a9a, a9a_t, w8a, mushrooms or phishing.
        num_clients: N.
        split: by_label, iid, dirichlet or dirichlet_balanced.
        alpha: of the Dirichlet splits; smaller is more uneven.
        rows: so many of the data set, at random; all if None.
        penalty: factor of |x|^2 / 2.
        seed: of the split and of the rows taken.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a name or number is not known.
    """
    check_one_of("split", split, data.SPLITS)
    check_count("num_clients", num_clients)
    check_count("seed", seed, least=0)
    check_positive("alpha", alpha)
    check_positive("penalty", penalty)
    if rows is not None:
        check_count("rows", rows)
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
    """Four hospitals, each with its own patients: who has a heart disease?

    Args:
        penalty: factor of |x|^2 / 2.
        missing: "drop" patients with holes, or fill them with the "mean" of their
            hospital.
        part: "all" patients, "train" or "test".
        seed: draws those for tests: a quarter of every hospital's, ill and well alike.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a word is not known.
    """
    _check(part, seed, penalty)
    table = data.heart_disease(data_dir, missing)
    test = data.hold_out(2 * table.center + (table.y > 0), TEST_SHARE, seed)
    taken, x = _part(part, table.x, test)
    ones = np.ones((len(x), 1))  # an intercept, penalised like the rest
    x, y = np.concatenate([x, ones], axis=1), 2 * table.y - 1
    parts = data.natural(table.center[taken])
    return logistic(x[taken], y[taken], parts, penalty, weights)


@PROBLEMS.register("tcga_brca")
def tcga_brca(
    penalty: float = 0.1,
    part: str = "all",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> Cox:
    """Six regions, each with its own patients: who lives how long with breast cancer?

    Every region has its own risk sets.

    Args:
        penalty: factor of |x|^2 / 2.
        part: "all" patients, "train" or "test".
        seed: draws the patients for tests.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a word is not known.
    """
    _check(part, seed, penalty)
    table = data.tcga_brca(data_dir)
    test = data.hold_out(2 * table.region + table.event, TEST_SHARE, seed)
    return _cox(table, part, test, penalty, weights)


@PROBLEMS.register("dialysis")
def dialysis(
    penalty: float = 1e-3, part: str = "all", seed: int = 0, weights: Weights = None
) -> Cox:
    """Who lives how long on dialysis? 67 centres, one client each, by Cox's model.

    Every centre has its own risk sets, so the pooled fit that this one equals is that
    of Cox's model stratified by centre, ties after Breslow, with the same penalty.

    Args:
        penalty: factor of |x|^2 / 2, beside the log likelihood for each death.
        part: "all" patients, "train" or "test".
        seed: draws the patients for tests.
        weights: of clients: "equal", or a number for each.

    Raises:
        ValueError: If SurvSet is not installed, or a word or number is not known.
    """
    _check(part, seed, penalty)
    table = data.dialysis(seed)
    return _cox(table, part, ~table.train, penalty, weights)


def _cox(
    table: data.Survival, part: str, test: np.ndarray, penalty: float, weights: Weights
) -> Cox:
    """Cox's model of some patients, stratified by client."""
    taken, x = _part(part, table.x, test)
    parts = data.natural(table.region[taken])
    stacked: Any = data.stack(parts, x[taken], table.time[taken], table.event[taken])
    A, time, event = stacked.arrays
    return Cox(A, time, event, penalty, stacked.mask, weights)


def _check(part: str, seed: int, penalty: float) -> None:
    """Check arguments before any data are looked for: they may have to be fetched."""
    check_one_of("part", part, PARTS)
    check_count("seed", seed, least=0)
    check_positive("penalty", penalty)


def _part(part: str, x: np.ndarray, test: np.ndarray):
    """Select patients; standardise all features without looking at the tests."""
    parts = dict(zip(PARTS, (np.ones(len(x), bool), ~test, test), strict=True))
    return parts[part], data.standardise(x, x if part == "all" else x[~test])


def logistic(
    x: np.ndarray, y: np.ndarray, parts: list, penalty: float, weights: Weights = None
) -> Logistic:
    """Logistic regression on rows dealt out by index; labels are +1 and -1."""
    stacked: Any = data.stack(parts, x, y)
    A, b = stacked.arrays
    return Logistic(A, b, penalty, stacked.mask, weights)

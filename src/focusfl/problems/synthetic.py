"""Problems drawn at random from a seed, the ridge regression of the paper among them."""

from typing import Any

import numpy as np
from jaxtyping import Float

from focusfl.core import random as keys
from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import (
    check_count,
    check_fits,
    check_not_negative,
    check_positive,
    check_share,
)
from focusfl.problems.nonconvex import Robust, Wavy
from focusfl.problems.problem import Weights
from focusfl.problems.quadratic import LeastSquares, Quadratic


@PROBLEMS.register("ridge")
def ridge(
    num_clients: int = 16,
    dim: int = 100,
    rows: int = 100,
    penalty: float = 0.01,
    heterogeneity: float = 1.0,
    noise: float = 0.1,
    smallest_row: float = 1.0,
    seed: int = 0,
    weights: Weights = None,
) -> LeastSquares:
    """Draw the ridge regression of the paper's text: a sum over rows, not a mean.

    Rows are standard normal, each times a factor drawn from [smallest_row, 1]. Client i has
    a model x_i, a common one plus `heterogeneity` times a standard normal; its targets are
    A x_i plus `noise` times a standard normal.

    Args:
        num_clients: N.
        dim: number of entries of the model.
        rows: number of rows of each client.
        penalty: factor of |x|^2 in every f_i.
        heterogeneity: how far clients' models are from the common one, per entry.
        noise: standard deviation of the noise on targets.
        smallest_row: lower end of the factors of rows, 0 to 1; with 1 there are none.
        seed: of everything that is drawn.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If a count is below 1, or a size is negative.
    """
    _check_counts(num_clients=num_clients, dim=dim, rows=rows)
    for name, size in {
        "penalty": penalty, "heterogeneity": heterogeneity, "noise": noise
    }.items():  # fmt: skip
        check_not_negative(name, size)
    check_share("smallest_row", smallest_row)
    _check_memory("ridge", num_clients, num_clients * dim * (rows + dim))
    rng = keys.rng(seed, "ridge")
    A = rng.standard_normal((num_clients, rows, dim))
    A *= keys.rng(seed, "ridge", "rows").uniform(smallest_row, 1, (*A.shape[:2], 1))
    return LeastSquares(A, _targets(rng, A, heterogeneity, noise), penalty, weights)


@PROBLEMS.register("random_quadratic")
def random_quadratic(
    num_clients: int = 16,
    dim: int = 20,
    mu: float = 1.0,
    L: float = 4.0,
    heterogeneity: float = 1.0,
    seed: int = 0,
    weights: Weights = None,
) -> Quadratic:
    """Draw quadratics with eigenvalues uniform in [mu, L] and eigenvectors at random.

    The minimiser of f_i is a common point plus `heterogeneity` times a standard normal.

    Args:
        num_clients: N.
        dim: number of entries of the model.
        mu: smallest eigenvalue that may be drawn, positive.
        L: largest eigenvalue that may be drawn.
        heterogeneity: how far the minimisers of the f_i are from the common point, per entry.
        seed: of everything that is drawn.
        weights: of clients: "equal", or a number for each.

    Raises:
        ValueError: Unless 0 < mu <= L, counts are at least 1 and heterogeneity is at least 0.
    """
    _check_counts(num_clients=num_clients, dim=dim)
    check_positive("mu", mu)
    check_positive("L", L)
    check_not_negative("heterogeneity", heterogeneity)
    _check_memory("random_quadratic", num_clients, 3 * num_clients * dim**2)
    if not mu <= L:
        raise ValueError(f"mu and L must satisfy 0 < mu <= L; got {mu} and {L}.")
    rng = keys.rng(seed, "quadratic")
    basis = np.linalg.qr(rng.standard_normal((num_clients, dim, dim)))[0]
    values = rng.uniform(mu, L, (num_clients, dim, 1))
    H = basis @ (values * basis.swapaxes(1, 2))
    minimisers = _models(rng, num_clients, dim, heterogeneity)
    h = (H @ minimisers[..., None])[..., 0]
    return Quadratic((H + H.swapaxes(1, 2)) / 2, h, weights=weights)


@PROBLEMS.register("robust")
def robust(
    num_clients: int = 8,
    dim: int = 10,
    rows: int = 30,
    heterogeneity: float = 1.0,
    outliers: float = 0.2,
    noise: float = 0.1,
    seed: int = 0,
    weights: Weights = None,
) -> Robust:
    """Draw a regression in which each client has a model, and some targets are outliers.

    Args:
        num_clients: N.
        dim: number of entries of the model.
        rows: number of rows of each client.
        heterogeneity: how far clients' models are from the common one, per entry.
        outliers: share of targets, 0 to 1, that are off by a normal of standard deviation 10.
        noise: standard deviation of the noise on all targets.
        seed: of everything that is drawn.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If a number is out of its range.
    """
    _check_counts(num_clients=num_clients, dim=dim, rows=rows)
    check_not_negative("heterogeneity", heterogeneity)
    check_not_negative("noise", noise)
    check_share("outliers", outliers)
    _check_memory("robust", num_clients, num_clients * rows * dim)
    rng = keys.rng(seed, "robust")
    A = rng.standard_normal((num_clients, rows, dim)) / np.sqrt(dim)
    b = _targets(rng, A, heterogeneity, noise)
    is_outlier = rng.random((num_clients, rows)) < outliers
    b = b + is_outlier * 10 * rng.standard_normal((num_clients, rows))
    return Robust(A, b, weights)


@PROBLEMS.register("wavy")
def wavy(
    num_clients: int = 8,
    dim: int = 10,
    rows: int | None = None,
    condition: float = 2.0,
    heterogeneity: float = 1.0,
    distance: float = 4.0,
    seed: int = 0,
) -> Wavy:
    """Draw a non-convex problem with the PL condition and F* = 0.

    Args:
        num_clients: N.
        dim: number of entries of the model.
        rows: number of rows of A, 1 to dim; dim if None.
        condition: ratio of the largest and the smallest singular value of A, at least 1.
        heterogeneity: size of clients' gradients at x*; up to 1 it spreads curvatures too.
        distance: size of the residuals at x0 = 0, where g has waves of length pi.
        seed: of everything that is drawn.

    Raises:
        ValueError: If a number is out of its range.
    """
    rows = dim if rows is None else rows
    _check_counts(num_clients=num_clients, dim=dim, rows=rows)
    check_not_negative("heterogeneity", heterogeneity)
    check_not_negative("distance", distance)
    check_positive("condition", condition)
    if condition < 1:
        raise ValueError(f"condition must be at least 1; got {condition}.")
    _check_memory("wavy", num_clients, num_clients * dim**2)
    if not 1 <= rows <= dim:
        raise ValueError(f"rows must lie in 1..dim; got {rows} with dim = {dim}.")
    rng = keys.rng(seed, "wavy")
    left = np.linalg.qr(rng.standard_normal((rows, rows)))[0]
    right = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:rows]
    A = left * np.geomspace(1, condition, rows) @ right
    b = distance * rng.standard_normal(rows)
    spread = min(heterogeneity, 1.0)
    w = 1 + 0.8 * spread * (2 * rng.random((num_clients, rows)) - 1)
    c = heterogeneity * rng.standard_normal((num_clients, dim))
    return Wavy(A, b, w / w.mean(0), c - c.mean(0))


def _check_counts(**counts: Any) -> None:
    for name, count in counts.items():
        check_count(name, count)


def _check_memory(kind: str, num_clients: int, count: int) -> None:
    """Raise ValueError if a problem of so many numbers does not fit into memory."""
    check_fits(f"{kind} with {num_clients:,} clients", count, "fewer clients or a smaller dim")


def _models(
    rng: np.random.Generator, num_clients: int, dim: int, heterogeneity: float
) -> Float[np.ndarray, "clients dim"]:
    """Draw a model for each client: a common one plus normal differences."""
    common = rng.standard_normal(dim)
    return common + heterogeneity * rng.standard_normal((num_clients, dim))


def _targets(
    rng: np.random.Generator,
    A: Float[np.ndarray, "clients rows dim"],
    heterogeneity: float,
    noise: float,
) -> Float[np.ndarray, "clients rows"]:
    """Draw what a model of each client answers to its rows, plus noise."""
    models = _models(rng, len(A), A.shape[2], heterogeneity)
    return (A @ models[..., None])[..., 0] + noise * rng.standard_normal(A.shape[:2])

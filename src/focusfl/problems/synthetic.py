"""Quadratic problems drawn at random, the ridge regression of the paper among them."""

import numpy as np

from focusfl.core import random as keys
from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import (
    check_count,
    check_fits,
    check_not_negative,
    check_positive,
    check_share,
)
from focusfl.problems.quadratic import LeastSquares, Quadratic
from focusfl.problems.weights import Weights

FEWER = "fewer clients or a smaller dim"


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

    Rows are standard normal, times a number drawn from [smallest_row, 1] each; client i
    fits a model of its own, x_o plus `heterogeneity` times a standard normal, seen
    through `noise`.

    Args:
        num_clients: N.
        dim: numbers in the model.
        rows: per client.
        penalty: factor of |x|^2 in every f_i.
        heterogeneity: how far clients' own models are from the common one, per entry.
        noise: standard deviation of what is added to b.
        smallest_row: factors of rows are drawn from here to 1; 1 leaves them alone.
        seed: of all that is drawn.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If a count is below 1, or a size is negative.
    """
    for name, count in {"num_clients": num_clients, "dim": dim, "rows": rows}.items():
        check_count(name, count)
    for name, size in {
        "penalty": penalty, "heterogeneity": heterogeneity, "noise": noise
    }.items():  # fmt: skip
        check_not_negative(name, size)
    check_share("smallest_row", smallest_row)
    rows_and_gram = num_clients * dim * (rows + dim)
    check_fits(f"ridge with {num_clients:,} clients", rows_and_gram, FEWER)
    rng = keys.rng(seed, "ridge")
    A = rng.standard_normal((num_clients, rows, dim))
    A *= keys.rng(seed, "ridge", "rows").uniform(smallest_row, 1, (*A.shape[:2], 1))
    common = rng.standard_normal(dim)
    own = common + heterogeneity * rng.standard_normal((num_clients, dim))
    b = (A @ own[..., None])[..., 0] + noise * rng.standard_normal((num_clients, rows))
    return LeastSquares(A, b, penalty, weights)


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

    Client i's own minimiser is x_o plus `heterogeneity` times a standard normal.

    Args:
        num_clients: N.
        dim: numbers in the model.
        mu: smallest eigenvalue that may be drawn, positive.
        L: largest eigenvalue that may be drawn.
        heterogeneity: how far clients' own minimisers are from the common point, per
            entry.
        seed: of all that is drawn.
        weights: of clients: "equal", or a number for each.

    Raises:
        ValueError: Unless 0 < mu <= L.
    """
    for name, count in {"num_clients": num_clients, "dim": dim}.items():
        check_count(name, count)
    for name, size in {"mu": mu, "L": L}.items():
        check_positive(name, size)
    check_not_negative("heterogeneity", heterogeneity)
    matrices = 3 * num_clients * dim**2
    check_fits(f"random_quadratic with {num_clients:,} clients", matrices, FEWER)
    if not mu <= L:
        raise ValueError(f"mu and L must satisfy 0 < mu <= L; got {mu} and {L}.")
    rng = keys.rng(seed, "quadratic")
    basis = np.linalg.qr(rng.standard_normal((num_clients, dim, dim)))[0]
    values = rng.uniform(mu, L, (num_clients, dim, 1))
    H = basis @ (values * basis.swapaxes(1, 2))
    own = rng.standard_normal(dim)
    own = own + heterogeneity * rng.standard_normal((num_clients, dim))
    h = (H @ own[..., None])[..., 0]
    return Quadratic((H + H.swapaxes(1, 2)) / 2, h, weights=weights)

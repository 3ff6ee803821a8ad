"""Everybody's variables in the rows of one matrix."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from focusfl.privacy import Private
from focusfl.problems import Problem

Stacked = Float[np.ndarray, "nodes dim"]
Gradients = Callable[[Stacked], Stacked]  # row i is the gradient of f_i at row i


def coefficients(
    problem: Problem,
) -> tuple[Float[np.ndarray, "clients dim dim"], Float[np.ndarray, "clients dim"]]:
    """H and h of a problem with f_i(x) = x·H_i x / 2 - h_i·x, all of equal weight."""
    if problem.weights is not None:
        raise ValueError(
            "matrix forms are for clients of equal weight; this problem's clients have "
            'weights. Use weights="equal".'
        )
    if isinstance(problem, Private):
        raise ValueError(
            "matrix forms are of gradients as they are; this problem's are clipped and "
            "noisy. Give what is private in it, its `exact`."
        )
    try:
        return problem.data["H"], problem.data["h"]
    except (IndexError, KeyError, TypeError):
        raise ValueError(
            "matrix forms need a problem whose data are H and h; "
            f"got {type(problem).__name__}. Use Quadratic(H, h)."
        ) from None


def gradients(problem: Problem) -> Gradients:
    """Make the function that takes every row to its own client's gradient there."""
    H, h = coefficients(problem)
    return lambda Z: np.einsum("nij,nj->ni", H, Z) - h

"""Stochastic matrices of a set S, checks and Perron vectors of such, and gradients by rows.

In the matrices of a set row and column 0 are the server.
"""

from collections.abc import Callable, Iterable
from typing import SupportsIndex

import numpy as np
from jaxtyping import Float

from focusfl.participation.model import Marginals
from focusfl.privacy import Private
from focusfl.problems import Problem

Mixing = Float[np.ndarray, "nodes nodes"]  # nodes = clients + 1 where there is a server
Stacked = Float[np.ndarray, "nodes dim"]
Gradients = Callable[[Stacked], Stacked]  # row i is the gradient of f_i at row i
TOLERANCE = 1e-9  # far above rounding, far below a weight somebody left out

Perron = Float[np.ndarray, " nodes"]


def _members(active: Iterable[SupportsIndex], num_clients: int) -> list[int]:
    ids = sorted(int(i) for i in active)
    if len(set(ids)) != len(ids) or any(not 0 <= i < num_clients for i in ids):
        raise ValueError(f"active must be distinct clients from 0 to {num_clients - 1}; got {ids}.")
    return [i + 1 for i in ids]


def pull(active: Iterable[SupportsIndex], num_clients: int) -> Mixing:
    """R(S): participants take the server's value. Row-stochastic."""
    R = np.eye(num_clients + 1)
    for i in _members(active, num_clients):
        R[i, i], R[i, 0] = 0, 1
    return R


def collect(active: Iterable[SupportsIndex], num_clients: int) -> Mixing:
    """C(S), R(S) transposed: participants hand everything over. Column-stochastic."""
    return pull(active, num_clients).T


def average(active: Iterable[SupportsIndex], num_clients: int) -> Mixing:
    """A(S): the server takes the participants' mean, if any. Row-stochastic."""
    A = np.eye(num_clients + 1)
    members = _members(active, num_clients)
    if members:
        A[0, 0] = 0
        A[0, members] = 1 / len(members)
    return A


def gossip(active: Iterable[SupportsIndex], num_clients: int) -> Mixing:
    """W(S): participants average among themselves. Doubly stochastic; no server row."""
    members = [i - 1 for i in _members(active, num_clients)]
    W = np.eye(num_clients)
    if members:
        W[np.ix_(members, members)] = 1 / len(members)
    return W


def mean_pull(marginals: Marginals) -> Mixing:
    """E R(S): client i takes the server's value with probability p_i, not q_i."""
    R = np.diag(1 - np.concatenate([[0], marginals.p]))
    R[1:, 0] = marginals.p
    return R


def mean_collect(marginals: Marginals) -> Mixing:
    """E C(S), which is E R(S) transposed."""
    return mean_pull(marginals).T


def mean_average(marginals: Marginals) -> Mixing:
    """E A(S): row 0 holds q, and on its diagonal the probability of an empty round.

    A(S) = I when nobody comes: what q lacks of 1 is the server keeping its value.
    """
    A = np.eye(len(marginals.q) + 1)
    A[0, 0] = max(0.0, 1 - marginals.q.sum())  # rounding must not make it negative
    A[0, 1:] = marginals.q
    return A


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


def check_row_stochastic(matrix: np.ndarray, name: str = "the matrix") -> None:
    """Raise ValueError unless rows sum to 1 and no entry is negative."""
    _check_entries(matrix, name)
    _check_sums(matrix.sum(1), f"{name} must be row-stochastic", "row")


def check_column_stochastic(matrix: np.ndarray, name: str = "the matrix") -> None:
    """Raise ValueError unless columns sum to 1 and no entry is negative."""
    _check_entries(matrix, name)
    _check_sums(matrix.sum(0), f"{name} must be column-stochastic", "column")


def check_doubly_stochastic(matrix: np.ndarray, name: str = "the matrix") -> None:
    """Raise ValueError unless rows and columns sum to 1 and no entry is negative."""
    _check_entries(matrix, name)
    for axis, line in enumerate(("column", "row")):
        _check_sums(matrix.sum(axis), f"{name} must be doubly stochastic", line)


def left_perron(R: Mixing) -> Perron:
    """pi with pi R = pi and sum 1: how much of the consensus R^k Z is owed to whom."""
    check_row_stochastic(R, "R")
    return _perron(R)


def right_perron(C: Mixing) -> Perron:
    """pi with C pi = pi and sum 1: how C^k Y shares out the sum of the rows of Y."""
    check_column_stochastic(C, "C")
    return _perron(C.T)


def _perron(R: Mixing) -> Perron:
    reach = _reach(R > 0)
    # A node that can be left for good weighs nothing; the others form closed groups.
    closed = (reach <= reach.T).all(1)
    groups = {tuple(np.flatnonzero(reach[i]).tolist()) for i in np.flatnonzero(closed)}
    if len(groups) > 1:
        names = " and ".join(_braces(group) for group in sorted(groups))
        raise ValueError(
            "a Perron vector must be unique; got a disconnected graph: nothing leads "
            f"out of the nodes {names}. Connect them."
        )
    (group,) = groups
    core = R[np.ix_(group, group)]
    rows = np.vstack([core.T - np.eye(len(core)), np.ones(len(core))])
    pi = np.zeros(len(R))
    pi[list(group)] = np.linalg.lstsq(rows, np.eye(len(rows))[-1])[0]
    return pi


def _reach(edges: np.ndarray) -> np.ndarray:
    """Who can be reached from whom, by steps along edges or none."""
    reach = edges | np.eye(len(edges), dtype=bool)
    for _ in range(len(edges).bit_length()):  # paths of 2, 4, 8, ... edges
        reach = reach.astype(float) @ reach > 0
    return reach


def _check_entries(matrix: np.ndarray, name: str) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} must be square; got shape {matrix.shape}.")
    worst = np.unravel_index(matrix.argmin(), matrix.shape)  # a nan counts as smallest
    if not matrix[worst] >= -TOLERANCE:
        at = ", ".join(map(str, worst))
        raise ValueError(f"{name} must have no negative entry; got {matrix[worst]:.6g} at [{at}].")


def _check_sums(sums: np.ndarray, wanted: str, line: str) -> None:
    worst = int(np.abs(sums - 1).argmax())
    if not abs(sums[worst] - 1) <= TOLERANCE:
        raise ValueError(
            f"{wanted}; {line} {worst} sums to {sums[worst]:.12g}. Every {line} must sum to 1."
        )


def _braces(group: tuple[int, ...], shown: int = 8) -> str:
    rest = ", ..." if len(group) > shown else ""
    return "{" + ", ".join(map(str, group[:shown])) + rest + "}"

"""What makes a matrix stochastic, and where its powers lead."""

import numpy as np
from jaxtyping import Float

from focusfl.mixing.matrices import Mixing

TOLERANCE = 1e-9  # far above rounding, far below a weight somebody left out

Perron = Float[np.ndarray, " nodes"]


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

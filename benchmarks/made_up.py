"""Data that several benchmarks make up."""

import numpy as np

import focusfl as ff


def logistic(num_clients: int, rows: int, dim: int) -> ff.problems.Logistic:
    """Logistic regression on noise, whose data lies in memory once."""
    rng = np.random.default_rng(0)
    size = num_clients * rows * dim
    room = np.empty(size + 8)
    first = -room.ctypes.data % 64 // 8  # aligned, so that nobody needs a copy
    A = room[first : first + size].reshape(num_clients, rows, dim)
    rng.standard_normal(out=A)
    b = np.where(A[:, :, 0] + rng.standard_normal((num_clients, rows)) > 0, 1.0, -1.0)
    problem = ff.problems.Logistic(A, b)
    # Nobody looks at the distance, and Newton's method takes minutes on a million.
    problem.__dict__["optimum"] = np.zeros(dim)
    return problem

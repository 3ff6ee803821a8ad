"""FedAvg and FOCUS in the paper's matrix form: everybody's variables stacked in rows.

Row 0 is the server, rows 1..N the clients. Iteration k = 1, 2, ... belongs to round
r = (k - 1) // local_steps. Not a way to run anything: an oracle for the engines.
"""

from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np
from jaxtyping import Bool, Float

from focusfl.mixing.matrices import Stacked, average, collect, gradients, pull
from focusfl.problems import Quadratic

Trajectory = Float[np.ndarray, "rounds_and_one dim"]


def _gradients(problem: Quadratic, x: Stacked) -> Stacked:
    """Everybody's gradient at their own row; the server holds no data."""
    return np.concatenate([np.zeros_like(x[:1]), gradients(problem)(x[1:])])


def _only(
    active: Iterable[SupportsIndex], num_clients: int, server: bool
) -> Float[np.ndarray, "nodes 1"]:
    """The diagonal of D: who moves."""
    d = np.zeros((num_clients + 1, 1))
    d[0] = server
    d[np.asarray(active, int) + 1] = 1
    return d


def fedavg(
    problem: Quadratic,
    masks: Bool[np.ndarray, "rounds clients"],
    lr: float,
    local_steps: int,
    x0: Float[np.ndarray, " dim"],
) -> Trajectory:
    """x <- A (y - lr D grad(y)) with y = R x; A = R = I inside a round."""
    n = problem.num_clients
    x = np.tile(x0, (n + 1, 1))
    out = [x0]
    for mask in masks:
        active = np.flatnonzero(mask)
        D = _only(active, n, server=False)
        x = pull(active, n) @ x
        for _ in range(local_steps):
            x = x - lr * D * _gradients(problem, x)
        x = average(active, n) @ x
        out.append(x[0])
    return np.array(out)


def focus(
    problem: Quadratic,
    masks: Bool[np.ndarray, "rounds clients"],
    lr: float,
    local_steps: int,
    x0: Float[np.ndarray, " dim"],
) -> Trajectory:
    """x <- R (x - lr D y); y <- C (y + grad(x) - grad(x before)), from y = grad(x0).

    R = R(S_r) and the server moves at the first iteration of round r, C = C(S_r) at the
    last. An empty round still moves the server.
    """
    n, identity = problem.num_clients, np.eye(problem.num_clients + 1)
    x = np.tile(x0, (n + 1, 1))
    y = grads = _gradients(problem, x)
    out = [x0]
    for mask in masks:
        active = np.flatnonzero(mask)
        for t in range(local_steps):
            first, last = t == 0, t == local_steps - 1
            R = pull(active, n) if first else identity
            C = collect(active, n) if last else identity
            x = R @ (x - lr * _only(active, n, server=first) * y)
            before, grads = grads, _gradients(problem, x)
            y = C @ (y + grads - before)
        out.append((x - lr * y)[0])  # what the next round begins with
    return np.array(out)


def focus_swapped(
    problem: Quadratic,
    masks: Bool[np.ndarray, "rounds clients"],
    lr: float,
    local_steps: int,
    x0: Float[np.ndarray, " dim"],
) -> Trajectory:
    """y <- C (y + grad(x) - grad(x before)); x <- R (x - lr D y): the proof's order.

    Both matrices act at the first iteration of round r: C = C(S_{r-1}), R = R(S_r).
    """
    n, identity = problem.num_clients, np.eye(problem.num_clients + 1)
    x = np.tile(x0, (n + 1, 1))
    y = grads = _gradients(problem, x)
    out = []
    previous = nobody = np.zeros(0, int)
    for active in [*map(np.flatnonzero, masks), nobody]:  # one more, to collect in
        for t in range(local_steps):
            first = t == 0
            C = collect(previous, n) if first else identity
            R = pull(active, n) if first else identity
            before, grads = grads, _gradients(problem, x)
            y = C @ (y + grads - before)
            x = R @ (x - lr * _only(active, n, server=first) * y)
            if first:
                out.append(x[0])
        previous = active
    return np.array(out)

"""The stochastic matrices of a set S. Row and column 0 are the server."""

from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np
from jaxtyping import Float

from focusfl.participation.model import Marginals

Mixing = Float[np.ndarray, "nodes nodes"]  # nodes = clients + 1 where there is a server


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

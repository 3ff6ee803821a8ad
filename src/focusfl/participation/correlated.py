"""Clients share outages: a group is down as a whole, or its clients toss coins."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, check_share, numeric, shown
from focusfl.participation.bernoulli import decaying
from focusfl.participation.model import (
    Marginals,
    Numbers,
    Participation,
    chances,
    check_each,
    ids_of,
    uniforms,
)


@PARTICIPATION.register("correlated")
@dataclass(frozen=True, eq=False)
class Correlated(Participation):
    """Coins with chance p, and groups that are down together with chance `outage`.

    Groups are a number of neighbourhoods of near equal size, in the order of the
    clients, or a list with the group of every client. Outages of different groups and
    rounds are independent. Rounds may be empty.
    """

    p: Numbers  # chance of a round without an outage: one for all, or one per client
    outage: float | int  # chance that a group is down, in [0, 1)
    groups: int | list | np.ndarray  # how many, or the group of every client

    def __post_init__(self):
        object.__setattr__(self, "p", chances("p", self.p))
        check_share("outage", self.outage, whole=False)  # at 1 nobody takes part, ever
        if not isinstance(self.groups, list | tuple | np.ndarray):
            check_count("groups", self.groups)
            return
        groups = numeric("groups", self.groups)
        if groups.ndim != 1 or groups.dtype.kind not in "iu" or not len(groups):
            raise ValueError(
                "groups must be a number of groups or a list with the group of every "
                f"client, as a whole number; got {shown(self.groups)}."
            )

    def check(self, num_clients):
        check_each("p", self.p, num_clients)
        check_each("groups", self.groups, num_clients)
        if np.ndim(self.groups) == 0 and self.groups > num_clients:
            raise ValueError(
                "groups must not be more than the clients; "
                f"got {self.groups} for {num_clients} clients."
            )

    def draw(self, state, rounds, num_clients, rng):
        p, group = np.asarray(self.p), self._group(num_clients)
        # One row holds the coins of the clients, then those of the groups.
        width = num_clients + int(group.max()) + 1
        drawn = []
        for _, coins in uniforms(rng, rounds, width):
            up = coins[:, num_clients:] >= self.outage
            drawn += ids_of((coins[:, :num_clients] < p) & up[:, group])
        return state, drawn

    def marginals(self, num_clients):
        """State them exactly: E[s^|S|] is a product over groups, as in Bernoulli."""
        self.check(num_clients)
        p, group = np.broadcast_to(self.p, num_clients), self._group(num_clients)
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(group.max() + 1))
        mean = np.zeros(num_clients)  # of 1 / (1 + number of others), if i is there
        for u, weights in decaying(num_clients - 1, float(p.sum()), num_clients):
            log_client = np.log1p(-p * u[:, None])  # (nodes, N)
            log_coins = np.add.reduceat(log_client[:, order], starts, axis=1)
            with np.errstate(divide="ignore"):  # no outage: log 0
                log_group = np.logaddexp(np.log(self.outage), np.log1p(-self.outage) + log_coins)
            others = log_group.sum(1, keepdims=True) + (log_coins - log_group)[:, group]
            mean += weights @ np.exp(others - log_client)
        p = (1 - self.outage) * p
        return Marginals(p, p * mean)

    def _group(self, num_clients):
        if np.ndim(self.groups) == 0:
            return np.arange(num_clients) * self.groups // num_clients
        return np.unique(self.groups, return_inverse=True)[1]

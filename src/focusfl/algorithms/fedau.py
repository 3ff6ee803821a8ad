"""FedAU: weight a client by how long it stays away, on average.

Wang, Ji. ICLR 2024. https://arxiv.org/abs/2306.03401
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.base import LocalDescent
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_count, check_positive


class Server(NamedTuple):
    x: Tree


class Client(NamedTuple):
    weight: Any  # mean length of the intervals closed so far; 1 before the first
    closed: Any  # how many those are
    last: Any  # the round that closed the last of them


@ALGORITHMS.register("fedau", style=4, invariant="weights are mean absences")
@dataclass(frozen=True)
class FedAU(LocalDescent[Server, Client]):
    """Estimate 1/p from the gaps; an absence of `cutoff` rounds counts as an interval.

    Divided by N, not by the sum of the weights: that ratio would be biased.
    """

    cutoff: int = 50  # rounds after which an absence counts as over
    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_count("cutoff", self.cutoff)
        check_positive("server_lr", self.server_lr)

    def init(self, params):
        return Server(params), Client(weight=1.0, closed=0, last=-1)

    def push(self, client, down, local, rd):
        dx = tree.sub(local.x, down["x"])
        # The weight from earlier rounds: it must not see this one.
        up = {"dx": tree.scale(self.catch_up(client, rd.index).weight, dx)}
        return self.state_after(client, up, down, rd), up

    def update(self, server, total, rd):
        return Server(tree.axpy(self.server_lr / rd.num_clients, total["dx"], server.x))

    def state_after(self, client, up, down, rd):
        client = self.catch_up(client, rd.index)
        return self.close(client, rd.index - client.last, 1)

    def catch_up(self, client, index):
        """Close the intervals that reached the cutoff while the client was away."""
        return self.close(client, self.cutoff, (index - 1 - client.last) // self.cutoff)

    def close(self, client, length, times):
        """Take `times` intervals of one length into the mean."""
        closed = client.closed + times
        weighed = client.closed * client.weight + times * length
        # Before anything is closed the weight is 1, whatever the mean of nothing is.
        nothing = closed == 0
        weight = (weighed + nothing) / (closed + nothing)
        return Client(weight, closed, client.last + times * length)

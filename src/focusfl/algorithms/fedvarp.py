"""FedVARP, with the memory on the clients. Jhunjhunwala et al. UAI 2022.

https://arxiv.org/abs/2207.14130
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import LocalDescent
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_positive


class Server(NamedTuple):
    x: Tree
    y: Tree  # mean over all clients of their last update


class Client(NamedTuple):
    y: Tree  # the last update this client computed


@ALGORITHMS.register("fedvarp", style=6, invariant="y = mean yᵢ")
@dataclass(frozen=True)
class FedVARP(LocalDescent[Server, Client]):
    """Correct the participants' updates by everybody's last ones."""

    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_positive("server_lr", self.server_lr)

    def max_exact_lr(self, L, local_steps):
        return math.inf if local_steps == 1 else 0.0  # several steps end at another x

    tracks_mean = True

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero)

    def push(self, client, down, local, rd):
        y = tree.sub(down["x"], local.x)
        return Client(y), {"dy": tree.sub(y, client.y)}

    def update(self, server, total, rd):
        v = tree.add(server.y, rd.mean(total["dy"]))
        return Server(
            tree.axpy(-self.server_lr, v, server.x),
            tree.axpy(1 / rd.num_clients, total["dy"], server.y),
        )

    def state_after(self, client, up, down, rd):
        return Client(tree.add(client.y, up["dy"]))

    def tracked(self, server, client):
        return {"y": client.y}

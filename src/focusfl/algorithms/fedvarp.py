"""FedVARP, with the memory on the clients. Jhunjhunwala et al. UAI 2022.

https://arxiv.org/abs/2207.14130
"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import UpdateMemory
from focusfl.core import ALGORITHMS, Tree, tree


class Server(NamedTuple):
    x: Tree
    y: Tree  # mean over all clients of their last update


class Client(NamedTuple):
    y: Tree  # the last update this client computed


@ALGORITHMS.register("fedvarp", style=6, invariant="y = mean yᵢ")
@dataclass(frozen=True)
class FedVARP(UpdateMemory[Server, Client]):
    """Correct the participants' updates by everybody's last ones."""

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

"""MIFA, with the memory on the clients. Gu et al. NeurIPS 2021.

https://arxiv.org/abs/2106.04159
"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import UpdateMemory
from focusfl.core import ALGORITHMS, Tree, tree


class Server(NamedTuple):
    x: Tree
    g: Tree  # mean over all clients of their last update, in units of a gradient


class Client(NamedTuple):
    g: Tree  # the last update this client computed


@ALGORITHMS.register("mifa", style=3, invariant="g = mean gᵢ")
@dataclass(frozen=True)
class MIFA(UpdateMemory[Server, Client]):
    """Move by everybody's last update, however old; absent clients count too.

    In the paper an empty round still moves the model: run it with
    `Options(on_empty="step")`.
    """

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero)

    def push(self, client, down, local, rd):
        # Measured from the pulled model: from the one before, it would telescope.
        g = tree.scale(1 / rd.lr, tree.sub(down["x"], local.x))
        return Client(g), {"dg": tree.sub(g, client.g)}

    def update(self, server, total, rd):
        g = tree.axpy(1 / rd.num_clients, total["dg"], server.g)
        return Server(tree.axpy(-self.server_lr * rd.lr, g, server.x), g)

    def state_after(self, client, up, down, rd):
        return Client(tree.add(client.g, up["dg"]))

    def tracked(self, server, client):
        return {"g": client.g}

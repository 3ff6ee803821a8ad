"""LocalSGD in the unified form: participants train and average among themselves.

Koloskova et al. ICML 2020. https://arxiv.org/abs/2003.10422
"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.core import Algorithm, tree
from focusfl.core.registry import ALGORITHMS
from focusfl.core.tree import Tree


class Server(NamedTuple):
    x: Tree  # the last average; the method's own output is the mean of everybody's z


class Client(NamedTuple):
    z: Tree  # the client's own model


class Local(NamedTuple):
    z: Tree


@ALGORITHMS.register("local_sgd", style=8, invariant="x = mean of the participants' models")
@dataclass(frozen=True)
class LocalSGD(Algorithm[Server, Client, Local]):
    """Train from one's own model and average inside S; nothing is pulled beforehand."""

    accepts_stale_model = True
    sends_state = False

    def init(self, params):
        return Server(params), Client(params)

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        return Local(client.z)

    def step(self, local, grad_fn, batch, rd):
        return Local(tree.axpy(-rd.lr, grad_fn(local.z, batch), local.z))

    def push(self, client, down, local, rd):
        return Client(local.z), {"z": local.z}

    def update(self, server, total, rd):
        return Server(rd.mean(total["z"], of_nobody=server.x))

    def state_after(self, client, up, down, rd):
        return Client(up["z"])

    def tracked(self, server, client):
        return {}

    def after_update(self, client, down, rd):
        return Client(down["x"])

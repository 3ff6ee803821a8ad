"""LocalSGD in the unified form: participants train and average among themselves.

Koloskova et al. ICML 2020. https://arxiv.org/abs/2003.10422
"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import Local, LocalDescent
from focusfl.core import ALGORITHMS, Tree


class Server(NamedTuple):
    x: Tree  # the last average; the method's own output is the mean of everybody's z


class Client(NamedTuple):
    z: Tree  # the client's own model


@ALGORITHMS.register("local_sgd", style=8, invariant="x = mean of the participants' models")
@dataclass(frozen=True)
class LocalSGD(LocalDescent[Server, Client]):
    """Train from one's own model and average inside S; nothing is pulled beforehand."""

    def init(self, params):
        return Server(params), Client(params)

    def pull(self, client, down):
        return Local(client.z)

    def push(self, client, down, local, rd):
        return Client(local.x), {"z": local.x}

    def update(self, server, total, rd):
        return Server(rd.mean(total["z"], of_nobody=server.x))

    def state_after(self, client, up, down, rd):
        return Client(up["z"])

    def after_update(self, client, down, rd):
        return Client(down["x"])

"""FedAvg. McMahan et al. AISTATS 2017. https://arxiv.org/abs/1602.05629"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.core import Algorithm, tree
from focusfl.core.registry import ALGORITHMS
from focusfl.core.tree import Tree
from focusfl.core.validation import check_positive


class Server(NamedTuple):
    x: Tree


class Client(NamedTuple):
    """Nothing: a FedAvg client forgets."""


class Local(NamedTuple):
    x: Tree


@ALGORITHMS.register("fedavg", style=1, invariant="x moves by the mean of the participants' moves")
@dataclass(frozen=True)
class FedAvg(Algorithm[Server, Client, Local]):
    """Average what the participants moved to; biased towards who takes part."""

    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_positive("server_lr", self.server_lr)

    accepts_stale_model = True
    sends_state = False

    def init(self, params):
        return Server(params), Client()

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        return Local(down["x"])

    def step(self, local, grad_fn, batch, rd):
        return Local(tree.axpy(-rd.lr, grad_fn(local.x, batch), local.x))

    def push(self, client, down, local, rd):
        return client, {"dx": tree.sub(local.x, down["x"])}

    def update(self, server, total, rd):
        return Server(tree.axpy(self.server_lr, rd.mean(total["dx"]), server.x))

    def state_after(self, client, up, down, rd):
        return client

    def tracked(self, server, client):
        return {}

"""FedAvg. McMahan et al. AISTATS 2017. https://arxiv.org/abs/1602.05629"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import LocalDescent
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_positive


class Server(NamedTuple):
    x: Tree


class Client(NamedTuple):
    """Nothing: a FedAvg client forgets."""


@ALGORITHMS.register("fedavg", style=1, invariant="x moves by the mean of the participants' moves")
@dataclass(frozen=True)
class FedAvg(LocalDescent[Server, Client]):
    """Average what the participants moved to; biased towards who takes part."""

    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_positive("server_lr", self.server_lr)

    def init(self, params):
        return Server(params), Client()

    def push(self, client, down, local, rd):
        return client, {"dx": tree.sub(local.x, down["x"])}

    def update(self, server, total, rd):
        return Server(tree.axpy(self.server_lr, rd.mean(total["dx"]), server.x))

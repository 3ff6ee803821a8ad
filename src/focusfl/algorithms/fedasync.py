"""FedAsync: asynchronous federated optimization. Xie, Koyejo, Gupta, 2019.

https://arxiv.org/abs/1903.03934
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.base import AsyncDescent, StaleModel
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_not_negative, check_share


class Server(NamedTuple):
    x: Tree
    version: Any  # rounds in which somebody came


@ALGORITHMS.register(
    "fedasync", style=28, invariant="FedAvg if all come every round and mixing is 1"
)
@dataclass(frozen=True)
class FedAsync(AsyncDescent[Server]):
    """Mix every model that comes in into the server's, less the staler it is.

    To take part in a round is to come back: a client's steps begin at the model it was
    sent at the end of the last round it was in, the first time at x0. If there were s
    rounds since, x moves by mixing * (1 + s)^-decay of the way to what it brings, and
    by the mean of such moves if several come at once.

    Biased towards who comes more often. The paper's proximal term is
    ClientOpt(FedAsync(), prox=...).
    """

    mixing: float = 0.6  # share of a fresh model in the mixture, alpha in the paper
    decay: float = 0.5  # exponent of staleness, a in the paper; 0: none

    def __post_init__(self):
        check_share("mixing", self.mixing)
        check_not_negative("decay", self.decay)

    def init(self, params):
        return Server(params, 0.0), StaleModel(params, 0.0)

    def push(self, client, down, local, rd):
        share = self.mixing * (1 + down["version"] - client.version) ** -self.decay
        return client, {"dx": tree.scale(share, tree.sub(local.x, down["x"]))}

    def update(self, server, total, rd):
        x = tree.add(server.x, rd.mean(total["dx"]))
        return Server(x, server.version + 1)

"""FedNova: average what clients did per step, however many steps each took.

Wang et al. NeurIPS 2020. https://arxiv.org/abs/2007.07481
"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import LocalDescent
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_positive, check_share


class Server(NamedTuple):
    x: Tree


class Client(NamedTuple):
    """Nothing: a FedNova client forgets."""


class Local(NamedTuple):
    x: Tree
    v: Tree  # what the next step is: gradients of this round, the last one whole


@ALGORITHMS.register("fednova", style=21, invariant="FedAvg if all take as many steps")
@dataclass(frozen=True)
class FedNova(LocalDescent[Server, Client]):
    """FedAvg of normalised updates, with momentum on clients; biased towards who comes.

    A participant divides its move by lr and by how much its gradients count in it, and
    sends that number beside; the server goes as far as they count on average, along the
    mean of the normalised. So clients that take more steps do not count for more.

    Engines give everybody the same number of steps, rd.local_steps: then this is FedAvg
    with momentum on the clients, to rounding, and without it FedAvg. The rule itself
    takes another number from each client; see docs/methods.md.
    """

    server_lr: float = 1.0  # factor of the server's step, positive
    momentum: float = 0.0  # of local steps: how much of the last is taken again, [0, 1)

    def __post_init__(self):
        check_positive("server_lr", self.server_lr)
        check_share("momentum", self.momentum, whole=False)

    def init(self, params):
        return Server(params), Client()

    def pull(self, client, down):
        return Local(down["x"], tree.zeros(down["x"]))

    def step(self, local, grad_fn, batch, rd):
        v = tree.axpy(self.momentum, local.v, grad_fn(local.x, batch))
        return Local(tree.axpy(-rd.lr, v, local.x), v)

    def push(self, client, down, local, rd):
        counts = self.counts(rd.local_steps)
        d = tree.scale(1 / (rd.lr * counts), tree.sub(local.x, down["x"]))
        return client, {"d": d, "counts": counts}

    def update(self, server, total, rd):
        far = self.server_lr * rd.lr * rd.mean(total["counts"])
        return Server(tree.axpy(far, rd.mean(total["d"]), server.x))

    def counts(self, steps):
        """How often gradients are in a move of so many steps, in all: |a|_1."""
        momentum = self.momentum
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)

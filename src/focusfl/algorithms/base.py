"""What FedAvg and its relatives share: gradient steps from the pulled model."""

from dataclasses import dataclass
from typing import Generic, NamedTuple

from focusfl.core import Algorithm, C, S, tree
from focusfl.core.tree import Tree


class Local(NamedTuple):
    x: Tree


@dataclass(frozen=True)
class LocalDescent(Algorithm[S, C, Local], Generic[S, C]):
    """Take local gradient steps from the pulled model.

    What a push is made of, and what the server does with the sum, is for a subclass to say. Unless
    it says otherwise, a push leaves a client's state as it is, and the server keeps nothing of it.
    """

    accepts_stale_model = True
    sends_state = False

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        return Local(down["x"])

    def step(self, local, grad_fn, batch, rd):
        return Local(tree.axpy(-rd.lr, grad_fn(local.x, batch), local.x))

    def state_after(self, client, up, down, rd):
        return client

    def tracked(self, server, client):
        return {}

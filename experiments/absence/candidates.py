"""A candidate that did not win: MIFA whose drift is corrected slowly.

Clients keep their mean local gradient m and a low-passed copy of it, which follows m by
a share beta in every round, absent or not; the server keeps the means of both. A local
step follows the gradient + (the server's slow mean - the client's slow copy). With
beta=0 it is MIFA; with any other it can rest only at the optimum.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.core import Algorithm, tree
from focusfl.core.tree import Tree


class Server(NamedTuple):
    x: Tree
    mean: Tree  # of everybody's m
    slow: Tree  # of everybody's slow copy
    clock: Any  # rounds


class Client(NamedTuple):
    m: Tree
    slow: Tree  # at the round that `clock` says
    clock: Any


class Local(NamedTuple):
    x: Tree
    shift: Tree
    total: Tree


@dataclass(frozen=True)
class Filtered(Algorithm[Server, Client, Local]):
    """MIFA with a correction of drift that follows at a share beta a round."""

    beta: float = 0.2

    @property
    def cost(self):
        return 2, 1

    def max_exact_lr(self, L, local_steps):
        return 2 / L  # at rest local steps lead back to x

    def init(self, params):
        zero = tree.zeros(params)
        clock = tree.dot(zero, zero)
        return Server(params, zero, zero, clock), Client(zero, zero, clock)

    def broadcast(self, server):
        return {"x": server.x, "slow": server.slow, "clock": server.clock}

    def caught_up(self, client, clock):
        """A client's slow copy now: m has stood still since its last visit."""
        kept = (1 - self.beta) ** (clock - client.clock)
        return tree.axpy(kept, tree.sub(client.slow, client.m), client.m)

    def pull(self, client, down):
        shift = tree.sub(down["slow"], self.caught_up(client, down["clock"]))
        return Local(down["x"], shift, tree.zeros(shift))

    def step(self, local, grad_fn, batch, rd):
        grad = grad_fn(local.x, batch)
        x = tree.axpy(-rd.lr, tree.add(grad, local.shift), local.x)
        return Local(x, local.shift, tree.add(local.total, grad))

    def push(self, client, down, local, rd):
        m = tree.scale(1 / rd.local_steps, local.total)
        slow = self.caught_up(client, down["clock"])
        return Client(m, slow, down["clock"]), {"dm": tree.sub(m, client.m)}

    def update(self, server, total, rd):
        mean = tree.axpy(1 / rd.num_clients, total["dm"], server.mean)
        slow = tree.axpy(self.beta, tree.sub(mean, server.slow), server.slow)
        x = tree.axpy(-rd.lr * rd.local_steps, mean, server.x)
        return Server(x, mean, slow, server.clock + 1)

"""ProxSkip for federated learning: everybody trains, and rarely communicates.

Mishchenko et al. ICML 2022. https://arxiv.org/abs/2202.09357
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl import tree
from focusfl.core import Algorithm
from focusfl.tree import Tree

PRIME = 46_337  # the largest whose square fits 31 bits


class Server(NamedTuple):
    x: Tree  # the last average


class Client(NamedTuple):
    z: Tree
    h: Tree  # what this client's gradient is at the optimum; sums to 0 over clients


class Local(NamedTuple):
    z: Tree
    h: Tree


@dataclass(frozen=True)
class ProxSkip(Algorithm):
    """Toss one coin per round, shared by all; average and correct only on heads.

    A round is one iteration of the paper: run it with local_steps=1 and everybody
    taking part, which is what its theory asks for.
    """

    p: float = 0.2  # chance of heads, in (0, 1]
    seed: int = 0  # of the coin
    period: int = 0  # if positive, heads every so many rounds instead of a coin

    def __post_init__(self):
        if not 0 < self.p <= 1:
            raise ValueError(f"p must lie in (0, 1]; got {self.p}.")

    @property
    def cost(self):
        often = 1 / self.period if self.period else self.p
        return often, often

    def coin(self, index) -> Any:
        """1 for heads, 0 for tails: everybody works it out from the round's number."""
        if self.period:
            return 1 * ((index + 1) % self.period == 0)
        index = (index + 101 * self.seed) % PRIME
        noise = index
        for stir in (30_011, 17_389, 8_233):  # products stay within 31 bits
            noise = (noise * noise + stir) % PRIME
            noise = (noise * stir + index) % PRIME
        return 1 * (noise < self.p * PRIME)

    def exact_below(self, L, local_steps):
        # At rest no step moves anybody, with heads or with tails; between heads that
        # come by the clock, local steps may lead back to where they began.
        return math.inf if local_steps == 1 and not self.period else 2 / L

    def init(self, params):
        return Server(params), Client(params, tree.zeros(params))

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        return Local(client.z, client.h)

    def step(self, local, grad_fn, batch, rd):
        grad = tree.sub(grad_fn(local.z, batch), local.h)
        return Local(tree.axpy(-rd.lr, grad, local.z), local.h)

    def push(self, client, down, local, rd):
        return Client(local.z, client.h), {"z": local.z}

    def update(self, server, total, rd):
        average = rd.mean(total["z"], of_nobody=server.x)
        heads = self.coin(rd.index)
        return Server(tree.axpy(heads, tree.sub(average, server.x), server.x))

    def settle(self, client, down, rd):
        heads = self.coin(rd.index)
        gap = tree.scale(heads, tree.sub(down["x"], client.z))
        p = 1 / self.period if self.period else self.p
        return Client(tree.add(client.z, gap), tree.axpy(p / rd.lr, gap, client.h))

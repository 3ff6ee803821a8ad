"""FOCUS: exact convergence under arbitrary client participation, by push-pull.

Ying, Li, Yang. NeurIPS 2025. https://arxiv.org/abs/2503.20117
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_flag, check_one_of

AT_REST = 1e-3  # |y| / N below this share of the gradient does not follow it any more


class Server(NamedTuple):
    x: Tree
    y: Tree  # sum over all clients of what each has stored

    @property
    def gradient_sum(self) -> Tree:
        return self.y


class Client(NamedTuple):
    grad: Tree  # stored: the last gradient this client computed, or the mean of a visit


class Local(NamedTuple):
    x: Tree
    y: Tree  # gradient now minus what is stored
    grad: Tree
    total: Tree  # the sum of this visit's gradients; nothing if the last is stored


@ALGORITHMS.register(
    "focus",
    label="FOCUS",
    style=0,
    invariant='y = Σ gradᵢ, the mean of a visit; `memory="last"`: the last, η < 1/L',
)
@dataclass(frozen=True)
class Focus(Algorithm[Server, Client, Local]):
    """Track the sum of gradients on the server; push differences, never averages.

    memory="last" is the paper's: a client stores, and so pushes, the last of its local
    gradients. The default stores their mean: it sends as much, has less noise, and is
    exact at twice the step. With one local step there is no difference.
    """

    warm_start: bool = False  # the theorem's initialisation; Algorithm 1 starts cold
    memory: str = "mean"  # which local gradient a client stores: the "mean" or "last"

    def __post_init__(self):
        check_flag("warm_start", self.warm_start)
        check_one_of("memory", self.memory, ("last", "mean"))

    @property
    def starts_warm(self):
        return self.warm_start

    def max_exact_lr(self, L, local_steps):
        if local_steps == 1:
            return math.inf
        if self.memory == "mean":
            # At rest the local gradients less the stored one sum to 0: one step more
            # would lead back to x, and below 2/L each goes down unless they vanish.
            return 2 / L
        # At rest the last local gradient is the stored one. Below 1/L a local step is
        # one-to-one, so that all gradients before it are too; past it they need not be.
        return 1 / L

    accepts_stale_model = True
    sends_state = False

    def init(self, params):
        # Zero on both sides: a stored gradient the server has not counted would stay
        # uncounted for ever.
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero)

    def pull(self, client, down):
        zero = tree.zeros(down["x"])
        total = zero if self.memory == "mean" else {}
        return Local(down["x"], zero, client.grad, total)

    def step(self, local, grad_fn, batch, rd):
        x = tree.axpy(-rd.lr, local.y, local.x)
        grad = grad_fn(x, batch)
        y = tree.add(local.y, tree.sub(grad, local.grad))
        return Local(x, y, grad, tree.add(local.total, grad))  # nothing stays nothing

    def push(self, client, down, local, rd):
        if self.memory == "last":
            return Client(local.grad), {"y": local.y}
        grad = tree.scale(1 / rd.local_steps, local.total)
        return Client(grad), {"y": tree.sub(grad, client.grad)}

    def update(self, server, total, rd):
        y = tree.add(server.y, total["y"])
        return Server(tree.axpy(-rd.lr, y, server.x), y)

    def state_after(self, client, up, down, rd):
        return Client(tree.add(client.grad, up["y"]))

    def tracked(self, server, client):
        return {"y": client.grad}

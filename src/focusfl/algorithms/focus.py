"""FOCUS: exact convergence under arbitrary client participation, by push-pull.

Ying, Li, Yang. NeurIPS 2025. https://arxiv.org/abs/2503.20117
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from focusfl import tree
from focusfl.checks import check_flag
from focusfl.core import Algorithm
from focusfl.tree import Tree

AT_REST = 1e-3  # |y| / N below this share of the gradient does not follow it any more


class Server(NamedTuple):
    x: Tree
    y: Tree  # sum over all clients of the last gradient each has pushed


class Client(NamedTuple):
    grad: Tree  # the last gradient this client computed


class Local(NamedTuple):
    x: Tree
    y: Tree  # gradient now minus gradient when last seen
    grad: Tree


@dataclass(frozen=True)
class Focus(Algorithm[Server, Client, Local]):
    """Track the sum of gradients on the server; push differences, never averages."""

    warm_start: bool = False  # the theorem's initialisation; Algorithm 1 starts cold

    def __post_init__(self):
        check_flag("warm_start", self.warm_start)

    @property
    def starts_warm(self):
        return self.warm_start

    def exact_below(self, L, local_steps):
        # At rest the last local gradient is the stored one. Below 1/L a local step is
        # one-to-one, so that all gradients before it are too; past it they need not be.
        return 1 / L if local_steps > 1 else math.inf

    def init(self, params):
        # Zero on both sides: a stored gradient the server has not counted would stay
        # uncounted for ever.
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero)

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        return Local(down["x"], tree.zeros(down["x"]), client.grad)

    def step(self, local, grad_fn, batch, rd):
        x = tree.axpy(-rd.lr, local.y, local.x)
        grad = grad_fn(x, batch)
        y = tree.add(local.y, tree.sub(grad, local.grad))
        return Local(x, y, grad)

    def push(self, client, down, local, rd):
        return Client(local.grad), {"y": local.y}

    def update(self, server, total, rd):
        y = tree.add(server.y, total["y"])
        return Server(tree.axpy(-rd.lr, y, server.x), y)

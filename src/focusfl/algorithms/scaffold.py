"""SCAFFOLD, options I and II. Karimireddy et al. ICML 2020.

https://arxiv.org/abs/1910.06378
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_count, check_positive


class Server(NamedTuple):
    x: Tree
    c: Tree  # mean over all clients of their control variates


class Client(NamedTuple):
    c: Tree  # what this client's gradient is at the optimum, as far as it knows


class Local(NamedTuple):
    x: Tree
    drift: Tree  # c - c_i, added to every gradient
    anchor: Tree  # the first gradient, at the pulled model
    steps: Any


@ALGORITHMS.register(
    "scaffold", label="SCAFFOLD", style=2, invariant="c = mean cᵢ; option II finds it from dx alone"
)
@dataclass(frozen=True)
class Scaffold(Algorithm[Server, Client, Local]):
    """Correct every local step by the difference between one's own gradient and all.

    Option 1 renews a client's control variate with its gradient at the pulled model;
    option 2 with the mean of its local gradients, which the server can work out from
    the change of the model: nothing more is sent.
    """

    option: int = 2  # 1 or 2, as in the paper
    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_count("option", self.option)
        if self.option > 2:
            raise ValueError(f"option must be 1 or 2; got {self.option}.")
        check_positive("server_lr", self.server_lr)

    @property
    def cost(self):
        return (2, 2) if self.option == 1 else (2, 1)

    def max_exact_lr(self, L, local_steps):
        # At rest local steps lead back to where they began; below 2/L each goes down.
        # With option 1 they are level on average, which is the same for convex f_i.
        return 2 / L if local_steps > 1 else math.inf

    @property
    def accepts_stale_model(self):
        return self.option == 1  # with option 2 the server infers dc from its own c

    sends_state = False
    tracks_mean = True

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero)

    def broadcast(self, server):
        return {"x": server.x, "c": server.c}

    def pull(self, client, down):
        drift = tree.sub(down["c"], client.c)
        return Local(down["x"], drift, tree.zeros(drift), 0)

    def step(self, local, grad_fn, batch, rd):
        grad = grad_fn(local.x, batch)
        x = tree.axpy(-rd.lr, tree.add(grad, local.drift), local.x)
        anchor = tree.axpy(1 * (local.steps == 0), grad, local.anchor)
        return Local(x, local.drift, anchor, local.steps + 1)

    def push(self, client, down, local, rd):
        dx = tree.sub(local.x, down["x"])
        if self.option == 1:
            dc = tree.sub(local.anchor, client.c)
            return Client(local.anchor), {"dx": dx, "dc": dc}
        return self.state_after(client, {"dx": dx}, down, rd), {"dx": dx}

    def state_after(self, client, up, down, rd):
        if self.option == 1:
            return Client(tree.add(client.c, up["dc"]))
        steps = -1 / (rd.local_steps * rd.lr)
        dc = tree.axpy(steps, up["dx"], tree.scale(-1, down["c"]))
        return Client(tree.add(client.c, dc))

    def update(self, server, total, rd):
        if self.option == 1:
            dc = total["dc"]
        else:  # the sum over S of what `push` has added
            mean = tree.scale(-1 / (rd.local_steps * rd.lr), total["dx"])
            dc = tree.axpy(-rd.num_active, server.c, mean)
        return Server(
            tree.axpy(self.server_lr, rd.mean(total["dx"]), server.x),
            tree.axpy(1 / rd.num_clients, dc, server.c),
        )

    def tracked(self, server, client):
        return {"c": client.c}

"""FedDyn: draw clients to the server's model, and correct for what that does.

Acar et al. ICLR 2021. https://arxiv.org/abs/2111.04263
"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import stationary_below, strength
from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_positive


class Server(NamedTuple):
    x: Tree
    h: Tree  # mean over all clients of their corrections


class Client(NamedTuple):
    g: Tree  # what this client's gradient is at the optimum, as far as it knows


class Local(NamedTuple):
    z: Tree
    x: Tree  # the pulled model, to which alpha draws z back
    g: Tree


@ALGORITHMS.register("feddyn", style=17, invariant="h = mean gᵢ; x = mean_S z − h/α")
@dataclass(frozen=True)
class FedDyn(Algorithm[Server, Client, Local]):
    """Minimise a client's loss, less its correction, near the server's model.

    A participant takes its local steps on f_i(z) - g_i·z + alpha |z - x|^2 / 2, which
    the paper minimises, and lets g_i be the gradient of f_i where that would end. Exact
    whoever takes part and however few the steps are.

    The paper's alpha is a constant, of the order of the curvature: too small and the
    server overshoots, too large and nobody moves. If None it follows the step.
    """

    alpha: float | None = None  # strength of the pull; 1 / (local_steps lr) if None

    def __post_init__(self):
        if self.alpha is not None:
            check_positive("alpha", self.alpha)

    def max_exact_lr(self, L, local_steps):
        # At rest no g moves, so that local steps lead back to x: there the gradient of
        # each f_i is g_i. And x = x - h / alpha: the mean of the g_i is 0.
        return stationary_below(self.alpha, L, local_steps)

    accepts_stale_model = True
    sends_state = False
    tracks_mean = True

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero)

    def pull(self, client, down):
        return Local(down["x"], down["x"], client.g)

    def step(self, local, grad_fn, batch, rd):
        grad = tree.sub(grad_fn(local.z, batch), local.g)
        pull = tree.sub(local.z, local.x)
        grad = tree.axpy(strength(self.alpha, rd), pull, grad)
        return local._replace(z=tree.axpy(-rd.lr, grad, local.z))

    def push(self, client, down, local, rd):
        # In units of a gradient: if alpha is another one when this counts, h is right.
        dx = tree.sub(local.z, down["x"])
        dg = tree.scale(-strength(self.alpha, rd), dx)
        return Client(tree.add(client.g, dg)), {"dg": dg}

    def update(self, server, total, rd):
        # The mean of what `push` has just added, over all N: who is absent added 0.
        h = tree.axpy(1 / rd.num_clients, total["dg"], server.h)
        down = tree.add(rd.mean(total["dg"]), h)
        return Server(tree.axpy(-1 / strength(self.alpha, rd), down, server.x), h)

    def state_after(self, client, up, down, rd):
        return Client(tree.add(client.g, up["dg"]))

    def tracked(self, server, client):
        return {"h": client.g}

"""Scaffnew with a fixed number of local steps, corrected at the end of the round.

Mishchenko et al. ICML 2022. https://arxiv.org/abs/2202.09357
"""

import math
from dataclasses import dataclass
from typing import Generic, NamedTuple

from focusfl.core import ALGORITHMS, Algorithm, C, CannotForget, S, Tree, tree


class Local(NamedTuple):
    z: Tree
    h: Tree  # the client's correction


@dataclass(frozen=True)
class CorrectedDescent(Algorithm[S, C, Local], Generic[S, C]):
    """Base of methods whose clients shift their gradients by corrections that sum to 0."""

    accepts_stale_model = True
    sends_state = False

    def step(self, local, grad_fn, batch, rd):
        grad = tree.sub(grad_fn(local.z, batch), local.h)
        return Local(tree.axpy(-rd.lr, grad, local.z), local.h)

    def tracked(self, server, client):
        raise CannotForget(
            f"{self!r} relies on corrections that sum to 0 over all clients, and those "
            "of who remains do not."
        )


class Server(NamedTuple):
    x: Tree
    dx: Tree  # how far the last round moved it


class Client(NamedTuple):
    h: Tree  # what this client's gradient is at the optimum; sums to 0 over clients
    dz: Tree  # how far it moved itself, until the server answers


@ALGORITHMS.register("scaffnew", style=7, invariant="Σ hᵢ = 0")
@dataclass(frozen=True)
class Scaffnew(CorrectedDescent[Server, Client]):
    """Shift local gradients by h; correct h by how far the average was from one's own.

    Exact if and only if the clients that take part together connect everybody: under
    disjoint blocks h sums to 0 in each block, and each block solves its own problem.

    Written in differences, which vanish at the optimum: with models, rounding would
    make the sum of the h drift.
    """

    @property
    def cost(self):
        return 2, 1  # x at the start and dx at the end

    def max_exact_lr(self, L, local_steps):
        # At rest local steps lead back to where they began; below 2/L each goes down.
        return 2 / L if local_steps > 1 else math.inf

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero, zero)

    def broadcast(self, server):
        return {"x": server.x, "dx": server.dx}

    def pull(self, client, down):
        return Local(down["x"], client.h)

    def push(self, client, down, local, rd):
        dz = tree.sub(local.z, down["x"])
        return Client(client.h, dz), {"dz": dz}

    def update(self, server, total, rd):
        dx = rd.mean(total["dz"])
        return Server(tree.add(server.x, dx), dx)

    def state_after(self, client, up, down, rd):
        return Client(client.h, up["dz"])

    def after_update(self, client, down, rd):
        gap = tree.sub(down["dx"], client.dz)
        h = tree.axpy(1 / (rd.lr * rd.local_steps), gap, client.h)
        return Client(h, tree.zeros(h))

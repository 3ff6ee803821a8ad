"""Fed-LT, or Fed-PLT: Peaceman and Rachford's splitting with local training.

Bastianello, Liu, Johansson. 2024. https://arxiv.org/abs/2403.17572
"""

from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.base import stationary_below, strength
from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_positive


class Server(NamedTuple):
    x: Tree
    z: Tree  # mean over all clients of their z: the same, unless a wrapper moves x


class Client(NamedTuple):
    w: Tree  # the client's own model, from which it trains on
    z: Tree  # x - z is its gradient at the optimum, times rho


class Local(NamedTuple):
    w: Tree
    v: Tree  # x reflected in z, to which 1 / rho draws w


@ALGORITHMS.register("fedlt", style=18, invariant="x = mean zᵢ")
@dataclass(frozen=True)
class FedLT(Algorithm[Server, Client, Local]):
    """Train from one's own model near 2x - z; move z by twice the way from x to there.

    A participant takes its local steps on f_i(w) + |w - (2x - z_i)|^2 / (2 rho), from
    where it ended last time. Exact whoever takes part; the server's x is the mean of
    everybody's z. The noise that makes it private, in Fed-PLT, is left out.

    The paper's rho is a constant. If None it follows the step; z is in units of it, so
    that under a schedule of lr clients have to learn anew.
    """

    rho: float | None = None  # the prox's own step; local_steps lr if None

    def __post_init__(self):
        if self.rho is not None:
            check_positive("rho", self.rho)

    @property
    def spring(self):
        return None if self.rho is None else 1 / self.rho

    def max_exact_lr(self, L, local_steps):
        # At rest no z moves, so that every w is x, and local steps lead back to it:
        # there the gradient of each f_i is (x - z_i) / rho. Their mean is 0, as x is
        # the mean of the z_i.
        return stationary_below(self.spring, L, local_steps)

    accepts_stale_model = True
    tracks_mean = True

    def init(self, params):
        return Server(params, params), Client(params, params)

    def pull(self, client, down):
        return Local(client.w, tree.sub(tree.scale(2, down["x"]), client.z))

    def step(self, local, grad_fn, batch, rd):
        pull = tree.sub(local.w, local.v)
        grad = tree.axpy(strength(self.spring, rd), pull, grad_fn(local.w, batch))
        return local._replace(w=tree.axpy(-rd.lr, grad, local.w))

    def push(self, client, down, local, rd):
        dz = tree.scale(2, tree.sub(local.w, down["x"]))
        return Client(local.w, tree.add(client.z, dz)), {"dz": dz}

    def update(self, server, total, rd):
        z = tree.axpy(1 / rd.num_clients, total["dz"], server.z)
        return Server(z, z)

    def tracked(self, server, client):
        return {"z": client.z}

"""FedADMM: the alternating direction method of multipliers, of whoever takes part.

Gong, Li, Freris. ICDE 2022. https://arxiv.org/abs/2204.03529
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.base import stationary_below, strength
from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_positive


class Server(NamedTuple):
    x: Tree
    mean: Tree  # of all clients' w + a / rho: the same, unless a wrapper moves x


class Client(NamedTuple):
    w: Tree  # the client's own model, from which it trains on
    a: Tree  # its multiplier: minus its gradient at the optimum, as far as it knows
    rho: Any  # with which a was counted last


class Local(NamedTuple):
    w: Tree
    x: Tree  # the pulled model, to which rho draws w
    a: Tree


@ALGORITHMS.register("fedadmm", style=19, invariant="x = mean (wᵢ + aᵢ/ρ)")
@dataclass(frozen=True)
class FedADMM(Algorithm[Server, Client, Local]):
    """Agree on x by multipliers; absent clients count with their last word.

    A participant takes its local steps on f_i(w) + a_i·(w - x) + rho |w - x|^2 / 2,
    from where it ended last time, then adds rho (w - x) to a_i. The server's x is the
    mean of everybody's w + a / rho: the paper's server step is |S| / N here.
    Exact whoever takes part. The paper's rho is a constant; if None it follows lr.
    """

    rho: float | None = None  # penalty of disagreement; 1 / (local_steps lr) if None

    def __post_init__(self):
        if self.rho is not None:
            check_positive("rho", self.rho)

    def max_exact_lr(self, L, local_steps):
        # At rest no a moves, so that every w is x, and local steps lead back to it:
        # there the gradient of each f_i is -a_i. Their mean is 0, as x is that of
        # x + a_i / rho.
        return stationary_below(self.rho, L, local_steps)

    accepts_stale_model = True
    tracks_mean = True

    def init(self, params):
        return Server(params, params), Client(params, tree.zeros(params), 1.0)

    def pull(self, client, down):
        return Local(client.w, down["x"], client.a)

    def step(self, local, grad_fn, batch, rd):
        grad = tree.add(grad_fn(local.w, batch), local.a)
        pull = tree.sub(local.w, local.x)
        grad = tree.axpy(strength(self.rho, rd), pull, grad)
        return local._replace(w=tree.axpy(-rd.lr, grad, local.w))

    def push(self, client, down, local, rd):
        rho = strength(self.rho, rd)
        dx = tree.sub(local.w, down["x"])
        a = tree.axpy(rho, dx, client.a)
        # Not (a - client.a) / rho: under a schedule of lr it had another one.
        before = tree.axpy(1 / client.rho, client.a, client.w)
        change = tree.sub(tree.axpy(1 / rho, a, local.w), before)
        return Client(local.w, a, 1.0 * rho), {"change": change}

    def update(self, server, total, rd):
        mean = tree.axpy(1 / rd.num_clients, total["change"], server.mean)
        return Server(mean, mean)

    def tracked(self, server, client):
        return {"mean": tree.axpy(1 / client.rho, client.a, client.w)}

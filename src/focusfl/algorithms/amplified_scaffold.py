"""Amplified SCAFFOLD: control variates and a longer step for every few rounds.

Crawshaw, Liu. NeurIPS 2024. https://arxiv.org/abs/2410.23131
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.scaffold import Scaffold
from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_count, check_positive


class Server(NamedTuple):
    x: Tree
    c: Tree  # mean over all clients of their control variates, in this window
    mean: Tree  # over all clients of their means: c of the next window
    begin: Tree  # x at the beginning of this window
    done: Any  # rounds of this window
    window: Any  # how many are over


class Client(NamedTuple):
    c: Tree  # its control variate in the window it was last there
    mean: Tree  # of its local gradients in that window: c of the next one it comes in
    visits: Any  # rounds that is a mean of; a float: jax gives 1 / int half the bits
    window: Any  # which that was


class Local(NamedTuple):
    x: Tree
    drift: Tree  # c - c_i, added to every gradient
    total: Tree  # sum of gradients


@ALGORITHMS.register(
    "amplified_scaffold",
    label="Amplified SCAFFOLD",
    style=20,
    invariant="mean = that of all meanᵢ; P = 1, γ = 1 is SCAFFOLD",
)
@dataclass(frozen=True)
class AmplifiedScaffold(Algorithm[Server, Client, Local]):
    """SCAFFOLD whose control variates are means over windows of so many rounds.

    At the end of a window x is carried on, `gamma` times as far as it came in it; who
    was there takes the mean of its gradients for its control variate, and who was not
    keeps its own. Made for clients that come in turns: a window is a cycle of theirs.

    A window is `period` rounds in which the server moves: one with nobody, which is
    skipped, does not count. With period=1 and gamma=1 this is SCAFFOLD, option 2. What
    is late, in a deployment, is refused: it belongs to a window that may be over.
    """

    period: int = 4  # rounds of a window, P in the paper
    gamma: float = 1.5  # how many times the way of a window is gone

    def __post_init__(self):
        check_count("period", self.period)
        check_positive("gamma", self.gamma)

    @property
    def cost(self):
        return 2, 2  # x, c; dx, and the change of a mean over a client's own visits

    def max_exact_lr(self, L, local_steps):
        # At rest a mean over visits is of equal gradients: as with SCAFFOLD, dx is the
        # same for all, -lr local_steps c, and no way gone gamma times is none.
        return Scaffold().max_exact_lr(L, local_steps)

    sends_state = False
    tracks_mean = True

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params, zero, zero, params, 0, 0.0), Client(zero, zero, 0.0, 0.0)

    def broadcast(self, server):
        return {"x": server.x, "c": server.c, "window": server.window}

    def pull(self, client, down):
        drift = tree.sub(down["c"], _now(client, down).c)
        return Local(down["x"], drift, tree.zeros(drift))

    def step(self, local, grad_fn, batch, rd):
        grad = grad_fn(local.x, batch)
        x = tree.axpy(-rd.lr, tree.add(grad, local.drift), local.x)
        return Local(x, local.drift, tree.add(local.total, grad))

    def push(self, client, down, local, rd):
        client = _now(client, down)
        visits = client.visits + 1
        gap = tree.axpy(1 / rd.local_steps, local.total, tree.scale(-1, client.mean))
        change = tree.scale(1 / visits, gap)
        mean = tree.add(client.mean, change)
        up = {"dx": tree.sub(local.x, down["x"]), "dmean": change}
        return client._replace(mean=mean, visits=visits), up

    def update(self, server, total, rd):
        first, done = 1 * (server.done == 0), server.done + 1
        last = 1 * (done == self.period)
        begin = tree.axpy(first, tree.sub(server.x, server.begin), server.begin)
        x = tree.add(server.x, rd.mean(total["dx"]))
        x = tree.axpy(last * (self.gamma - 1), tree.sub(x, begin), x)
        mean = tree.axpy(1 / rd.num_clients, total["dmean"], server.mean)
        c = tree.axpy(last, tree.sub(mean, server.c), server.c)
        return Server(x, c, mean, begin, done * (1 - last), server.window + last)

    def state_after(self, client, up, down, rd):
        client = _now(client, down)
        mean = tree.add(client.mean, up["dmean"])
        return client._replace(mean=mean, visits=client.visits + 1)

    def tracked(self, server, client):
        now = _now(client, {"window": server.window})
        return {"c": now.c, "mean": now.mean}


def _now(client: Client, down: dict[str, Any]) -> Client:
    """The memory of a client that finds out in which window it is."""
    new = 1 * (down["window"] != client.window)
    c = tree.axpy(new, tree.sub(client.mean, client.c), client.c)
    return Client(c, client.mean, client.visits * (1 - new), down["window"])

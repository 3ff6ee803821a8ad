"""FedBuff: buffered asynchronous aggregation. Nguyen et al. AISTATS 2022.

https://arxiv.org/abs/2106.06639
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.base import AsyncDescent, StaleModel
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_count, check_positive


class Server(NamedTuple):
    x: Tree
    buffer: Tree  # sum of the moves that have come in since x moved
    count: Any  # how many those are
    version: Any  # how often x has moved; a float: jax gives roots of int half the bits


@ALGORITHMS.register(
    "fedbuff", style=23, invariant="FedAvg if all come every round and fill the buffer"
)
@dataclass(frozen=True)
class FedBuff(AsyncDescent[Server]):
    """Move once enough clients have come in, each with work on the model it left with.

    To take part in a round is to come back: a client's steps begin at the model it was
    sent at the end of the last round it was in, the first time at x0. What it brings is
    weighted by 1 / sqrt(1 + s) if x has moved s times since. At the end of a round with
    `size` or more in the buffer, x moves by their mean, and the buffer is empty.

    Biased towards who comes more often, and away from the stale; as FedAvg, where
    everybody comes every round and size is N.
    """

    size: int = 10  # of a full buffer, K in the paper; by weight if clients have some
    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_count("size", self.size)
        check_positive("server_lr", self.server_lr)

    def init(self, params):
        return Server(params, tree.zeros(params), 0.0, 0.0), StaleModel(params, 0.0)

    def push(self, client, down, local, rd):
        stale = down["version"] - client.version
        dx = tree.sub(local.x, client.x)
        return client, {"dx": tree.scale((1 + stale) ** -0.5, dx)}

    def update(self, server, total, rd):
        buffer = tree.add(server.buffer, total["dx"])
        count = server.count + rd.num_active
        full = 1 * (count >= self.size)
        x = tree.axpy(full * self.server_lr / (count + (1 - full)), buffer, server.x)
        left = 1 - full
        return Server(x, tree.scale(left, buffer), left * count, server.version + full)

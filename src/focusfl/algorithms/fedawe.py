"""FedAWE: adaptive innovation echo and implicit gossip.

Xiang et al. NeurIPS 2024. https://arxiv.org/abs/2409.17446
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.base import Local, LocalDescent
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_positive


class Server(NamedTuple):
    x: Tree  # the last average; the mean of everybody's z is the better output


class Client(NamedTuple):
    z: Tree  # the client's own model
    last: Any  # the last round it took part in


@ALGORITHMS.register("fedawe", style=5, invariant="every round is echoed once")
@dataclass(frozen=True)
class FedAWE(LocalDescent[Server, Client]):
    """Repeat one's progress once for every round missed; average inside S.

    Nothing is pulled at the start of a round. The echo is unstable when a client comes
    back after an absence much longer than 1 / (lr * local_steps * L).
    """

    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_positive("server_lr", self.server_lr)

    def init(self, params):
        return Server(params), Client(params, last=-1)

    def pull(self, client, down):
        return Local(client.z)

    def push(self, client, down, local, rd):
        away = rd.index - client.last
        progress = tree.sub(local.x, client.z)
        z = tree.axpy(self.server_lr * away, progress, client.z)
        return Client(z, client.last + away), {"z": z}

    def update(self, server, total, rd):
        return Server(rd.mean(total["z"], of_nobody=server.x))

    def state_after(self, client, up, down, rd):
        return Client(up["z"], rd.index)

    def after_update(self, client, down, rd):
        return client._replace(z=down["x"])

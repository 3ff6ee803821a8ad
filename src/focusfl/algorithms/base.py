"""What families of algorithms share: FedAvg's relatives, and those with a spring."""

import math
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

from focusfl.core import Algorithm, C, Round, S, Tree, tree
from focusfl.core.validation import check_positive


class Local(NamedTuple):
    x: Tree


@dataclass(frozen=True)
class LocalDescent(Algorithm[S, C, Local], Generic[S, C]):
    """Take local gradient steps from the pulled model.

    What a push is made of, and what the server does with the sum, is for a subclass to say. Unless
    it says otherwise, a push leaves a client's state as it is, and the server keeps nothing of it.
    """

    accepts_stale_model = True
    sends_state = False

    def pull(self, client, down):
        return Local(down["x"])

    def step(self, local, grad_fn, batch, rd):
        return Local(tree.axpy(-rd.lr, grad_fn(local.x, batch), local.x))

    def state_after(self, client, up, down, rd):
        return client

    def tracked(self, server, client):
        return {}


@dataclass(frozen=True)
class UpdateMemory(LocalDescent[S, C], Generic[S, C]):
    """Base of methods whose server has the mean of all clients' last updates."""

    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_positive("server_lr", self.server_lr)

    def max_exact_lr(self, L, local_steps):
        return math.inf if local_steps == 1 else 0.0  # several steps end at another x

    tracks_mean = True


class StaleModel(NamedTuple):
    """The state of a client that works on the model of its last visit."""

    x: Tree  # the model it was sent then
    version: Any  # of that model


@dataclass(frozen=True)
class AsyncDescent(LocalDescent[S, StaleModel], Generic[S]):
    """Take local steps from the model of the last visit; the server counts its versions."""

    @property
    def uses_stale_model(self):
        return True

    def broadcast(self, server):
        return {"x": server.x, "version": server.version}

    def pull(self, client, down):
        return Local(client.x)

    def after_update(self, client, down, rd):
        return StaleModel(down["x"], down["version"])


# The spring of FedDyn, Fed-LT and FedADMM draws a client's model towards a point while it trains.
# Their papers have a constant for how strong it is. Where a user gives none it is
# 1 / (local_steps lr): a prox of the same step as that of all local steps together, so that one
# step size is left to tune.


def strength(constant: float | None, rd: Round) -> Any:
    """Factor of the distance in every local gradient."""
    return 1 / (rd.local_steps * rd.lr) if constant is None else constant


def stationary_below(constant: float | None, L: float, local_steps: int) -> float:
    """The step below which local steps that lead back to where they began were none.

    The spring adds its strength to L, and gradient descent goes down with every step
    below 2 / (L + strength): it cannot come back. Where the strength follows lr that is
    lr < (2 - 1 / local_steps) / L. One step alone comes back only if it did not move.
    """
    if local_steps == 1:
        return math.inf
    return (2 - 1 / local_steps) / L if constant is None else 2 / (L + constant)

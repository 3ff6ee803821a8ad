"""Asynchrony: clients come back with work on the model they left with."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.fedavg import FedAvg
from focusfl.algorithms.wrapped import Wrapped, check_inner
from focusfl.core import ALGORITHMS, Algorithm, Message


class Client(NamedTuple):
    inner: Any  # the inner algorithm's
    down: Message  # what the server last told it


@ALGORITHMS.register(
    "stale",
    style=29,
    invariant="that of the inner one; clients work on the model of their last visit",
)
@dataclass(frozen=True)
class Stale(Wrapped):
    """Another algorithm, whose clients are told of the model when they have been heard.

    To take part in a round is to come back: a client works on what it was told at the
    end of the last round it was in, the first time on x0. FOCUS stays exact: the sum of
    what clients have stored is what the server has, however late a push comes, and
    where x rests it is as old as it likes.

    Engines put this around every algorithm where participation is asynchronous.
    """

    inner: Algorithm = FedAvg()  # whose clients are late

    def __post_init__(self):
        check_inner(self.inner, Stale)
        if self.inner.uses_stale_model:
            raise ValueError(
                f"inner must begin at the newest model; {self.inner!r} works on the "
                "one its clients left with already."
            )

    @property
    def uses_stale_model(self):
        return True

    has_after_update = True

    def max_exact_lr(self, L, local_steps):
        # At rest all that clients were told is the same, and that of now.
        return self.inner.max_exact_lr(L, local_steps)

    def init(self, params):
        server, client = self.inner.init(params)
        return server, Client(client, self.inner.broadcast(server))

    def pull(self, client, down):
        return self.inner.pull(client.inner, client.down)

    def push(self, client, down, local, rd):
        inner, up = self.inner.push(client.inner, client.down, local, rd)
        return Client(inner, client.down), up

    def state_after(self, client, up, down, rd):
        inner = self.inner.state_after(client.inner, up, client.down, rd)
        return Client(inner, client.down)

    def forget(self, server, client, weight, num_clients):
        return self.inner.forget(server, client.inner, weight, num_clients)

    def recompute(self, server, clients):
        inner = ((weight, client.inner) for weight, client in clients)
        return self.inner.recompute(server, inner)

    def after_update(self, client, down, rd):
        message = {name: down[name] for name in down}  # by name: a deployment sends these
        return Client(self.inner.after_update(client.inner, down, rd), message)

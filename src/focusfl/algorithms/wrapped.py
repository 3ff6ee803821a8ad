"""What algorithms that are made of another one have in common."""

import abc
from dataclasses import dataclass
from typing import Any

from focusfl.core import Algorithm
from focusfl.core.validation import check_is


@dataclass(frozen=True)
class Wrapped(Algorithm[Any, Any, Any]):
    """Another algorithm, but for the methods that a subclass writes anew.

    What it promises of exactness is for the subclass to say.
    """

    @property
    @abc.abstractmethod
    def original(self) -> Algorithm: ...

    @property
    def starts_warm(self):
        return self.original.starts_warm

    @property
    def cost(self):
        return self.original.cost

    def traffic(self, params):
        return self.original.traffic(params)

    @property
    def uses_stale_model(self):
        return self.original.uses_stale_model

    @property
    def elementwise(self):
        return self.original.elementwise

    @property
    def accepts_stale_model(self):
        return self.original.accepts_stale_model

    @property
    def sends_state(self):
        return self.original.sends_state

    @property
    def has_after_update(self):
        return self.original.has_after_update

    def init(self, params):
        return self.original.init(params)

    def broadcast(self, server):
        return self.original.broadcast(server)

    def pull(self, client, down):
        return self.original.pull(client, down)

    def step(self, local, grad_fn, batch, rd):
        return self.original.step(local, grad_fn, batch, rd)

    def push(self, client, down, local, rd):
        return self.original.push(client, down, local, rd)

    def update(self, server, total, rd):
        return self.original.update(server, total, rd)

    def after_update(self, client, down, rd):
        return self.original.after_update(client, down, rd)

    def state_after(self, client, up, down, rd):
        return self.original.state_after(client, up, down, rd)

    def forget(self, server, client, weight, num_clients):
        return self.original.forget(server, client, weight, num_clients)

    def recompute(self, server, clients):
        return self.original.recompute(server, clients)


def whole(server: Any) -> Any:
    """The server of the algorithm inside, with the model."""
    return server.inner._replace(x=server.x)


def apart(inner: Any) -> Any:
    """The same without the model: it is kept once."""
    return inner._replace(x={})


def innermost(algorithm: Algorithm) -> Algorithm:
    """The algorithm inside of all that is wrapped around it."""
    while isinstance(algorithm, Wrapped):
        algorithm = algorithm.original
    return algorithm


def check_inner(inner: Any, wrapper: type[Wrapped]) -> None:
    """Raise unless this can be wrapped: an algorithm, and not yet by such a wrapper."""
    check_is("inner", inner, Algorithm)
    inside = inner
    while isinstance(inside, Wrapped):
        if isinstance(inside, wrapper):
            raise ValueError(f"inner must not hold a {wrapper.__name__} already; got {inner!r}.")
        inside = inside.original

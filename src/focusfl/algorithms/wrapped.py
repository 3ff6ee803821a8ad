"""What algorithms that are made of another one have in common."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from focusfl.core import Algorithm
from focusfl.core.validation import check_is


@dataclass(frozen=True)
class Wrapped(Algorithm[Any, Any, Any]):
    """Another algorithm, but for the methods that a subclass writes anew.

    That is the one in the field `inner`, or the `original` that a subclass makes. What it
    promises of exactness is for the subclass to say.
    """

    def __post_init__(self):
        _ = self.original  # checks the constants that it is made with

    @property
    def original(self) -> Algorithm:
        """The algorithm that is wrapped."""
        return self.inner  # type: ignore[attr-defined]

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


@dataclass(frozen=True)
class OwnModel(Wrapped):
    """Base of what moves the model itself: its server has the fields `x` and `inner`.

    `inner` is the server of the algorithm inside, without the model, which is kept once.
    """

    inner: Algorithm

    def broadcast(self, server):
        return self.inner.broadcast(whole(server))

    def forget(self, server, client, weight, num_clients):
        inner = self.inner.forget(whole(server), client, weight, num_clients)
        return server._replace(inner=without_model(inner))

    def recompute(self, server, clients):
        inner = self.inner.recompute(whole(server), clients)
        return server._replace(inner=without_model(inner))


def whole(server: Any) -> Any:
    """Give the server of the algorithm inside, with the model."""
    return server.inner._replace(x=server.x)


def without_model(inner: Any) -> Any:
    """Give the same without the model."""
    return inner._replace(x={})


def layers(algorithm: Algorithm) -> Iterator[Algorithm]:
    """Yield an algorithm, then what is inside of it, layer by layer."""
    yield algorithm
    while isinstance(algorithm, Wrapped):
        algorithm = algorithm.original
        yield algorithm


def innermost(algorithm: Algorithm) -> Algorithm:
    """Give the algorithm inside of all that is wrapped around it."""
    *_, last = layers(algorithm)
    return last


def check_inner(inner: Any, wrapper: type[Wrapped]) -> None:
    """Raise unless this can be wrapped: an algorithm, and not yet by such a wrapper."""
    check_is("inner", inner, Algorithm)
    if any(isinstance(layer, wrapper) for layer in layers(inner)):
        raise ValueError(f"inner must not hold a {wrapper.__name__} already; got {inner!r}.")

"""What algorithms that are made of another one have in common."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from focusfl.core import Algorithm
from focusfl.core.validation import check_is


def _forward(name: str) -> Any:
    """Make a property or method that is the one of the algorithm inside."""
    return property(lambda self: getattr(self.original, name))


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

    starts_warm = _forward("starts_warm")
    cost = _forward("cost")
    traffic = _forward("traffic")
    uses_stale_model = _forward("uses_stale_model")
    elementwise = _forward("elementwise")
    accepts_stale_model = _forward("accepts_stale_model")
    sends_state = _forward("sends_state")
    has_after_update = _forward("has_after_update")
    init = _forward("init")
    broadcast = _forward("broadcast")
    pull = _forward("pull")
    step = _forward("step")
    push = _forward("push")
    update = _forward("update")
    after_update = _forward("after_update")
    state_after = _forward("state_after")
    forget = _forward("forget")
    recompute = _forward("recompute")


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

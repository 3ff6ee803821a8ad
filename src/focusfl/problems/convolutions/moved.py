"""An array whose axes are in another order than the function it belongs to thinks."""

from typing import Any, NamedTuple

import jax.numpy as jnp


class Moved(NamedTuple):
    """`array` has the axis `order[i]` of the value it stands for as its axis i."""

    array: Any
    order: tuple[int, ...]


def plain(value: Any) -> Any:
    """The value itself, its axes where they belong."""
    if not isinstance(value, Moved):
        return value
    return jnp.transpose(value.array, inverse(value.order))


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order that undoes an order."""
    return tuple(order.index(axis) for axis in range(len(order)))


def in_order(value: Any, order: tuple[int, ...]) -> Any:
    """An array of a value with its axes in this order; one of a single number as is."""
    if isinstance(value, Moved):
        if value.order == order:
            return value.array
        return jnp.transpose(value.array, [value.order.index(axis) for axis in order])
    return jnp.transpose(value, order) if jnp.ndim(value) == len(order) else value

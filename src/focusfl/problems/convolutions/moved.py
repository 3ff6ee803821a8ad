"""An array whose axes are in another order than the function it belongs to thinks."""

from typing import Any, NamedTuple

import jax.numpy as jnp


class Moved(NamedTuple):
    """A value with its images last: (channels, *pixels, images), as it is stored.

    Axis i of what is stored is the axis `order[i]` of the value. In `blocks` of 2, the
    pixels of every 2 x 2 come first: (2, 2, channels, *half the pixels, images).
    """

    array: Any
    order: tuple[int, ...]
    blocks: int = 1


def plain(value: Any) -> Any:
    """The value itself, its axes where they belong."""
    if not isinstance(value, Moved):
        return value
    order = value.order
    back = [order.index(axis) for axis in range(len(order))]
    return jnp.transpose(unblocked(value).array, back)


def stored(value: Any, order: tuple[int, ...], blocks: int = 1) -> Any:
    """A value as it is stored so; a single number as it is."""
    if jnp.ndim(value.array if isinstance(value, Moved) else value) == 0:
        return value
    if isinstance(value, Moved):
        if (value.order, value.blocks) == (order, blocks):
            return value.array
        value = unblocked(value)
        array = jnp.transpose(value.array, [value.order.index(axis) for axis in order])
    else:
        array = jnp.transpose(value, order)
    return array if blocks == 1 else split(array)


def unblocked(value: Moved) -> Moved:
    """The same, pixel by pixel."""
    return value if value.blocks == 1 else Moved(join(value.array), value.order)


def split(array: Any) -> Any:
    """Put the pixels of every 2 x 2 first."""
    channels, *pixels, images = array.shape
    count = len(pixels)
    # An axis of one is repeated for all pixels, and stays one.
    halves = [size for n in pixels for size in ((1, 1) if n == 1 else (n // 2, 2))]
    array = array.reshape(channels, *halves, images)
    inside = [2 + 2 * k for k in range(count)]
    outside = [axis for axis in range(array.ndim) if axis not in inside]
    return array.transpose(*inside, *outside)


def join(array: Any) -> Any:
    """Put the pixels of every 2 x 2 where they belong: the inverse of `split`."""
    count = (array.ndim - 2) // 2
    channels, *halves, images = array.shape[count:]
    order = [count]
    for k in range(count):
        order += [count + 1 + k, k]
    return array.transpose(*order, array.ndim - 1).reshape(
        channels, *(2 * n for n in halves), images
    )

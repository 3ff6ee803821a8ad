"""The largest of every window, images last, with a gradient that moves whole rows."""

import math
from functools import partial, reduce
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp

from focusfl.problems.convolutions.products import Moves, cut, put, sides


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def largest(x: Any, window: tuple[int, ...], moves: Moves) -> Any:
    """The largest of every window of padded images (channels, *pixels, images).

    The gradient goes to the first of equals, as in jax and PyTorch.
    """
    return reduce(jnp.maximum, _cuts(x, window, moves))


@jax.custom_vjp
def largest_of_blocks(x: Any) -> Any:
    """The largest of every block, (2, 2, channels, *half the pixels, images)."""
    return _blocks_forward(x)[0]


def _blocks_forward(x):
    parts = x.reshape(-1, *x.shape[(x.ndim - 2) // 2 :])
    y = reduce(jnp.maximum, parts)  # a reduction would run on its own
    place = jnp.full(y.shape, len(parts) - 1, jnp.int8)
    for k in reversed(range(len(parts) - 1)):
        place = jnp.where(parts[k] == y, jnp.int8(k), place)
    return y, place


def _blocks_backward(place, g):
    count = 2 ** (g.ndim - 2)
    places = jnp.arange(count, dtype=place.dtype).reshape(-1, *[1] * g.ndim)
    d = jnp.where(place == places, g, 0)
    return (d.reshape((2,) * (g.ndim - 2) + g.shape),)


largest_of_blocks.defvjp(_blocks_forward, _blocks_backward)


def total(x: Any, window: tuple[int, ...], moves: Moves) -> Any:
    """The sum of every window of padded images."""
    return reduce(jnp.add, _cuts(x, window, moves))


def _forward(x, window, moves):
    y = largest(x, window, moves)
    # XLA computes cheap things again for everyone who reads them, though not what has
    # been concatenated: so do it by halves.
    half = len(x) // 2
    parts = [(x[:half], y[:half]), (x[half:], y[half:])] if half else [(x, y)]
    winner = jnp.concatenate([_winner(*part, window, moves) for part in parts])
    return y, (winner, jnp.zeros((0, *x.shape[1:-1], 0), x.dtype))


def _winner(x, y, window, moves):
    """Which pixel of its window the largest is."""
    place = jnp.full(y.shape, 0, jnp.int32)
    for k, part in reversed(list(enumerate(_cuts(x, window, moves)))):
        place = jnp.where(part == y, k, place)
    return place.astype(jnp.int8)


def _backward(window, moves, kept, g):
    winner, x = kept
    pixels, zero = x.shape[1:-1], jnp.zeros((), g.dtype)
    apart = moves.strides == window and set(moves.dilation) == {1}
    whole = tuple(n * s for n, s in zip(g.shape[1:-1], window, strict=True)) == pixels
    if apart and whole:  # windows side by side: every pixel is in one of them
        return (_spread(winner, g, window),)
    places = enumerate(product(*map(range, window)))
    back = (put(jnp.where(winner == k, g, zero), at, pixels, moves) for k, at in places)
    return (reduce(jnp.add, back),)


def _spread(winner, g, window):
    """Give every window's gradient to its winner, where windows lie side by side."""
    between = [size for n in g.shape[1:-1] for size in (n, 1)]
    winner, g = (a.reshape(len(a), *between, a.shape[-1]) for a in (winner, g))
    places = jnp.arange(math.prod(window), dtype=winner.dtype)
    places = places.reshape([size for k in window for size in (k, 1)])
    dy = jnp.where(winner == places, g, 0)
    pixels = [n * k for n, k in zip(between[::2], window, strict=True)]
    return dy.reshape(len(g), *pixels, g.shape[-1])


largest.defvjp(_forward, _backward)


def _cuts(x: Any, window: tuple[int, ...], moves: Moves) -> list[Any]:
    side = sides(x, window, moves)
    return [cut(x, at, side, moves) for at in product(*map(range, window))]

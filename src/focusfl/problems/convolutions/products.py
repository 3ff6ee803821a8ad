"""Convolutions as products (out, window) x (window, pixels of all images), and pools.

Images are (channels, *pixels, images): the values of one pixel in all images are adjacent in
memory, so that shifts and their gradients move whole rows. Weights are (*window, in, out).
Where a form looks odd, XLA compiles the plain one to something slower.
"""

import math
from functools import partial, reduce
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

MAX_STORED = 1 << 26  # bytes of windows stored for the gradient; more are computed again


class Moves(NamedTuple):
    """How a window moves over images: an entry for every axis of pixels."""

    strides: tuple[int, ...]
    dilation: tuple[int, ...]  # of the window


def convolve(x: Any, w: Any, moves: Moves, groups: int = 1) -> Any:
    """Convolve padded images (in, *pixels, images) with weights (*window, in / groups, out)."""
    if groups == 1:
        return _product(x, w, moves)
    inside, out = w.shape[-2:]
    if inside == 1:  # depthwise: a sum over the window alone
        return _by_channel(x, w.reshape(*w.shape[:-2], groups, out // groups), moves)
    parts = zip(jnp.split(x, groups), jnp.split(w, groups, -1), strict=True)
    return jnp.concatenate([_product(*part, moves) for part in parts])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x: Any, w: Any, moves: Moves) -> Any:
    return _forward(x, w, moves)[0]


def _forward(x, w, moves):
    near = _windows(x, w.shape[:-2], moves)
    # XLA would fold a plain w.T into the product, and then choose a slower kernel.
    rows = jnp.concatenate([part.T for part in jnp.split(_matrix(w), len(w))], axis=1)
    side = sides(x, w.shape[:-2], moves)
    y = (rows @ near).reshape(-1, *side, x.shape[-1])
    recompute = near.size * near.dtype.itemsize > MAX_STORED
    # An empty array carries the shape of images that are not stored.
    images = x if recompute else jnp.zeros((0, *x.shape[1:-1], 0), x.dtype)
    return y, (None if recompute else near, images, w)


def _backward(moves, stored, g):
    near, x, w = stored
    window, dy = w.shape[:-2], g.reshape(len(g), -1)
    if near is None:
        near = _windows(x, window, moves)
    dw = lax.dot_general(near, dy, (((1,), (1,)), ((), ()))).reshape(w.shape)
    d = (_matrix(w) @ dy).reshape(*window, w.shape[-2], *g.shape[1:])
    back = (put(d[at], at, x.shape[1:-1], moves) for at in _places(window))
    return reduce(jnp.add, back), dw


_product.defvjp(_forward, _backward)


@jax.custom_vjp
def convolve_blocks(x: Any, w: Any) -> Any:
    """Convolve padded images with stride 1; return results in blocks of 2 x 2.

    The four results of a block see one window that is a pixel larger each way: one product
    with weights for all four. Such windows take (k + 1)^2 / 4 numbers a pixel instead of k^2,
    and on a GPU the time goes into moving memory: rounds of the paper's CNN take 1.4 times
    as long without blocks on an H200 (9.1 and 13.0 ms; in full float32 17.6 and 29.7 ms).
    """
    return _blocks_forward(x, w)[0]


def _blocks_forward(x, w):
    window = tuple(k + 1 for k in w.shape[:-2])
    near = _windows(x, window, _by_two(window))
    side = sides(x, window, _by_two(window))
    y = _spread(w) @ near
    shape = (2,) * len(window) + (w.shape[-1], *side, x.shape[-1])
    return y.reshape(shape), (near, jnp.zeros((0, *x.shape[1:-1], 0), x.dtype), w)


def _blocks_backward(stored, g):
    near, x, w = stored
    window, dy = tuple(k + 1 for k in w.shape[:-2]), g.reshape(-1, near.shape[1])
    dw = lax.dot_general(dy, near, (((1,), (1,)), ((), ())))
    d = lax.dot_general(_spread(w), dy, (((0,), (0,)), ((), ())))
    d = d.reshape(*window, w.shape[-2], *g.shape[len(window) + 1 :])
    return _from_windows(d, x.shape[1:-1], window), _gather(dw, w.shape)


convolve_blocks.defvjp(_blocks_forward, _blocks_backward)


def _by_two(window: tuple[int, ...]) -> Moves:
    return Moves((2,) * len(window), (1,) * len(window))


def _from_windows(d: Any, pixels: tuple[int, ...], window: tuple[int, ...]) -> Any:
    """Sum over the windows that a pixel is in, for one place in the blocks after the other."""
    extra = [(k + 1) // 2 for k in window]  # how many blocks windows reach past the last

    def moved(at: tuple[int, ...]) -> Any:
        shifts = [(k // 2, most - k // 2) for k, most in zip(at, extra, strict=True)]
        return jnp.pad(d[at], [(0, 0), *shifts, (0, 0)])

    blocks = []
    for corner in product((0, 1), repeat=len(window)):
        inside = [range(c, k, 2) for c, k in zip(corner, window, strict=True)]
        blocks.append(reduce(jnp.add, map(moved, product(*inside))))
    whole = join(jnp.stack(blocks).reshape((2,) * len(window) + blocks[0].shape))
    return whole[(slice(None), *(slice(0, n) for n in pixels))]


def _spread(w: Any) -> Any:
    """Place the weights of each result of a block where that result is in the larger window."""
    count = w.ndim - 2
    rows = [
        jnp.pad(w, [*((c, 1 - c) for c in corner), (0, 0), (0, 0)])
        for corner in product((0, 1), repeat=count)
    ]
    return jnp.concatenate([_matrix(row).T for row in rows])


def _gather(d: Any, shape: tuple[int, ...]) -> Any:
    """Sum gradients over the results of a block: the transpose of `_spread`."""
    *window, inside, out = shape
    corners = list(product((0, 1), repeat=len(window)))
    d = d.reshape(len(corners), out, *(k + 1 for k in window), inside)
    parts = []
    for result, corner in zip(d, corners, strict=True):
        at = (slice(c, c + k) for c, k in zip(corner, window, strict=True))
        parts.append(result[(slice(None), *at)])
    return jnp.moveaxis(reduce(jnp.add, parts), 0, -1)


def _by_channel(x: Any, w: Any, moves: Moves) -> Any:
    """Convolve every channel alone, for each of its results."""
    window, (channels, each) = w.shape[:-2], w.shape[-2:]
    side = sides(x, window, moves)
    ones = (1,) * (len(side) + 1)
    parts = (
        cut(x, at, side, moves)[:, None] * w[at].reshape(channels, each, *ones)
        for at in _places(window)
    )
    return reduce(jnp.add, parts).reshape(channels * each, *side, x.shape[-1])


def sides(x: Any, window: tuple[int, ...], moves: Moves) -> tuple[int, ...]:
    """Count the places of a window along every axis."""
    sizes = zip(x.shape[1:-1], window, *moves, strict=True)
    return tuple((n - (k - 1) * d - 1) // s + 1 for n, k, s, d in sizes)


def cut(x: Any, at: tuple[int, ...], side: tuple[int, ...], moves: Moves) -> Any:
    """Take what one pixel of the window sees, at every place of the window."""
    for axis, (k, n, s, d) in enumerate(zip(at, side, *moves, strict=True), 1):
        x = lax.slice_in_dim(x, k * d, k * d + (n - 1) * s + 1, s, axis)
    return x


def put(d: Any, at: tuple[int, ...], pixels: tuple[int, ...], moves: Moves) -> Any:
    """Put back what `cut` took, with zeros around it: its transpose."""
    sizes = zip(at, pixels, d.shape[1:-1], *moves, strict=True)
    around = [(k * g, size - k * g - (n - 1) * s - 1, s - 1) for k, size, n, s, g in sizes]
    return lax.pad(d, jnp.zeros((), d.dtype), [(0, 0, 0), *around, (0, 0, 0)])


def _windows(x: Any, window: tuple[int, ...], moves: Moves) -> Any:
    """Lay out what every result sees: (pixels of the window x in, pixels of all images)."""
    side = sides(x, window, moves)
    if jax.default_backend() == "gpu":
        x = lax.optimization_barrier(x)  # or XLA computes it again for every slice
    # One axis after the other, the last one first: all at once would be written twice.
    for axis in reversed(range(len(window))):
        s, d, n = moves.strides[axis], moves.dilation[axis], side[axis]
        ends = [(k * d, k * d + (n - 1) * s + 1) for k in range(window[axis])]
        x = jnp.concatenate([lax.slice_in_dim(x, *end, s, axis + 1) for end in ends])
    return x.reshape(len(x), -1)


def _places(window: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, window)))


def _matrix(w: Any) -> Any:
    return w.reshape(-1, w.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def largest(x: Any, window: tuple[int, ...], moves: Moves) -> Any:
    """Take the largest of every window of padded images (channels, *pixels, images).

    Of several equal ones the first gets the gradient, as in jax and PyTorch.
    """
    return reduce(jnp.maximum, _cuts(x, window, moves))


@jax.custom_vjp
def largest_of_blocks(x: Any) -> Any:
    """Take the largest of every block, (2, 2, channels, *half the pixels, images)."""
    return _pool_blocks_forward(x)[0]


def _pool_blocks_forward(x):
    parts = x.reshape(-1, *x.shape[(x.ndim - 2) // 2 :])
    y = reduce(jnp.maximum, parts)  # parts.max(0) would be a kernel of its own
    place = jnp.full(y.shape, len(parts) - 1, jnp.int8)
    for k in reversed(range(len(parts) - 1)):
        place = jnp.where(parts[k] == y, jnp.int8(k), place)
    return y, place


def _pool_blocks_backward(place, g):
    count = 2 ** (g.ndim - 2)
    places = jnp.arange(count, dtype=place.dtype).reshape(-1, *[1] * g.ndim)
    d = jnp.where(place == places, g, 0)
    return (d.reshape((2,) * (g.ndim - 2) + g.shape),)


largest_of_blocks.defvjp(_pool_blocks_forward, _pool_blocks_backward)


def total(x: Any, window: tuple[int, ...], moves: Moves) -> Any:
    """Sum every window of padded images."""
    return reduce(jnp.add, _cuts(x, window, moves))


def _largest_forward(x, window, moves):
    y = largest(x, window, moves)
    # XLA computes what is cheap again for every reader, but not what is concatenated: so
    # compute the winners in two halves.
    half = len(x) // 2
    parts = [(x[:half], y[:half]), (x[half:], y[half:])] if half else [(x, y)]
    winner = jnp.concatenate([_winner(*part, window, moves) for part in parts])
    return y, (winner, jnp.zeros((0, *x.shape[1:-1], 0), x.dtype))


def _winner(x, y, window, moves):
    """Find which pixel of its window is the largest."""
    place = jnp.full(y.shape, 0, jnp.int32)
    for k, part in reversed(list(enumerate(_cuts(x, window, moves)))):
        place = jnp.where(part == y, k, place)
    return place.astype(jnp.int8)


def _largest_backward(window, moves, stored, g):
    winner, x = stored
    pixels, zero = x.shape[1:-1], jnp.zeros((), g.dtype)
    disjoint = moves.strides == window and set(moves.dilation) == {1}
    whole = tuple(n * s for n, s in zip(g.shape[1:-1], window, strict=True)) == pixels
    if disjoint and whole:  # every pixel is in exactly one window
        return (_to_winners(winner, g, window),)
    places = enumerate(product(*map(range, window)))
    back = (put(jnp.where(winner == k, g, zero), at, pixels, moves) for k, at in places)
    return (reduce(jnp.add, back),)


def _to_winners(winner, g, window):
    """Give the gradient of every window to its winner, for windows that tile the image."""
    between = [size for n in g.shape[1:-1] for size in (n, 1)]
    winner, g = (a.reshape(len(a), *between, a.shape[-1]) for a in (winner, g))
    places = jnp.arange(math.prod(window), dtype=winner.dtype)
    places = places.reshape([size for k in window for size in (k, 1)])
    dy = jnp.where(winner == places, g, 0)
    pixels = [n * k for n, k in zip(between[::2], window, strict=True)]
    return dy.reshape(len(g), *pixels, g.shape[-1])


largest.defvjp(_largest_forward, _largest_backward)


def _cuts(x: Any, window: tuple[int, ...], moves: Moves) -> list[Any]:
    side = sides(x, window, moves)
    return [cut(x, at, side, moves) for at in product(*map(range, window))]


def split(array: Any) -> Any:
    """Bring images (channels, *pixels, images) into blocks: the pixels of every 2 x 2 first."""
    channels, *pixels, images = array.shape
    count = len(pixels)
    # An axis of size 1 is broadcast to all pixels, and stays 1.
    halves = [size for n in pixels for size in ((1, 1) if n == 1 else (n // 2, 2))]
    array = array.reshape(channels, *halves, images)
    inside = [2 + 2 * k for k in range(count)]
    outside = [axis for axis in range(array.ndim) if axis not in inside]
    return array.transpose(*inside, *outside)


def join(array: Any) -> Any:
    """Put the pixels of every 2 x 2 back in their places: the inverse of `split`."""
    count = (array.ndim - 2) // 2
    channels, *halves, images = array.shape[count:]
    order = [count]
    for k in range(count):
        order += [count + 1 + k, k]
    return array.transpose(*order, array.ndim - 1).reshape(
        channels, *(2 * n for n in halves), images
    )

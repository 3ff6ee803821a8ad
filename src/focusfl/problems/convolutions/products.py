"""A convolution as one product: (out, window) by (window, pixels of all images).

Images are (channels, *pixels, images): the same pixel of all images lies side by side,
so that shifting and its gradient move whole rows. Weights are (*window, in, out). What
XLA makes of some forms is the reason for others.
"""

from functools import partial, reduce
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from focusfl.problems.convolutions.moved import join

KEPT = 1 << 26  # bytes of windows that are kept for the gradient; more are made again


class Moves(NamedTuple):
    """How a window moves over images; an entry for every axis of pixels."""

    strides: tuple[int, ...]
    dilation: tuple[int, ...]  # of the window


def convolve(x: Any, w: Any, moves: Moves, groups: int = 1) -> Any:
    """Convolve padded images (in, *pixels, images); w: (*window, in / groups, out)."""
    if groups == 1:
        return _product(x, w, moves)
    inside, out = w.shape[-2:]
    if inside == 1:  # every channel by itself: nothing to sum over but the window
        return _by_channel(x, w.reshape(*w.shape[:-2], groups, out // groups), moves)
    parts = zip(jnp.split(x, groups), jnp.split(w, groups, -1), strict=True)
    return jnp.concatenate([_product(*part, moves) for part in parts])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x: Any, w: Any, moves: Moves) -> Any:
    return _forward(x, w, moves)[0]


def _forward(x, w, moves):
    near = _windows(x, w.shape[:-2], moves)
    # XLA would fold a plain w.T into the product, and then take a slower one.
    rows = jnp.concatenate([part.T for part in jnp.split(_matrix(w), len(w))], axis=1)
    side = sides(x, w.shape[:-2], moves)
    y = (rows @ near).reshape(-1, *side, x.shape[-1])
    again = near.size * near.dtype.itemsize > KEPT
    # An array of nothing tells the shape of images that are not kept.
    kept = x if again else jnp.zeros((0, *x.shape[1:-1], 0), x.dtype)
    return y, (None if again else near, kept, w)


def _backward(moves, kept, g):
    near, x, w = kept
    window, dy = w.shape[:-2], g.reshape(len(g), -1)
    if near is None:
        near = _windows(x, window, moves)
    dw = lax.dot_general(near, dy, (((1,), (1,)), ((), ()))).reshape(w.shape)
    d = (_matrix(w) @ dy).reshape(*window, w.shape[-2], *g.shape[1:])
    back = (put(d[at], at, x.shape[1:-1], moves) for at in _places(window))
    return reduce(jnp.add, back), dw


_product.defvjp(_forward, _backward)


def convolve_blocks(x: Any, w: Any) -> Any:
    """Convolve padded images by single pixels; give results in blocks of 2 x 2.

    The four results of a block lie in a window of one pixel more each way: a product
    with weights for all four of them. Such windows take (k + 1)^2 / 4 numbers a pixel
    instead of k^2, and on a GPU time goes into moving memory.
    """
    return _blocks(x, w)


@jax.custom_vjp
def _blocks(x: Any, w: Any) -> Any:
    return _blocks_forward(x, w)[0]


def _blocks_forward(x, w):
    window = tuple(k + 1 for k in w.shape[:-2])
    near = _windows(x, window, _by_two(window))
    side = sides(x, window, _by_two(window))
    y = _spread(w) @ near
    shape = (2,) * len(window) + (w.shape[-1], *side, x.shape[-1])
    return y.reshape(shape), (near, jnp.zeros((0, *x.shape[1:-1], 0), x.dtype), w)


def _blocks_backward(kept, g):
    near, x, w = kept
    window, dy = tuple(k + 1 for k in w.shape[:-2]), g.reshape(-1, near.shape[1])
    dw = lax.dot_general(dy, near, (((1,), (1,)), ((), ())))
    d = lax.dot_general(_spread(w), dy, (((0,), (0,)), ((), ())))
    d = d.reshape(*window, w.shape[-2], *g.shape[len(window) + 1 :])
    return _from_windows(d, x.shape[1:-1], window), _gather(dw, w.shape)


_blocks.defvjp(_blocks_forward, _blocks_backward)


def _by_two(window: tuple[int, ...]) -> Moves:
    return Moves((2,) * len(window), (1,) * len(window))


def _from_windows(d: Any, pixels: tuple[int, ...], window: tuple[int, ...]) -> Any:
    """Sum over the windows a pixel is in, one place in the blocks after the other."""
    extra = [(k + 1) // 2 for k in window]  # blocks that windows reach past the last

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
    """Weights of the results of a block where each has them in the window."""
    count = w.ndim - 2
    rows = [
        jnp.pad(w, [*((c, 1 - c) for c in corner), (0, 0), (0, 0)])
        for corner in product((0, 1), repeat=count)
    ]
    return jnp.concatenate([_matrix(row).T for row in rows])


def _gather(d: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the results of a block: the transpose of `_spread`."""
    *window, inside, out = shape
    corners = list(product((0, 1), repeat=len(window)))
    d = d.reshape(len(corners), out, *(k + 1 for k in window), inside)
    parts = []
    for own, corner in zip(d, corners, strict=True):
        at = (slice(c, c + k) for c, k in zip(corner, window, strict=True))
        parts.append(own[(slice(None), *at)])
    return jnp.moveaxis(reduce(jnp.add, parts), 0, -1)


def _by_channel(x: Any, w: Any, moves: Moves) -> Any:
    """Sum over the window alone, for every channel and each of its results."""
    window, (channels, each) = w.shape[:-2], w.shape[-2:]
    side = sides(x, window, moves)
    ones = (1,) * (len(side) + 1)
    parts = (
        cut(x, at, side, moves)[:, None] * w[at].reshape(channels, each, *ones)
        for at in _places(window)
    )
    return reduce(jnp.add, parts).reshape(channels * each, *side, x.shape[-1])


def sides(x: Any, window: tuple[int, ...], moves: Moves) -> tuple[int, ...]:
    """How many places a window has, on every axis."""
    sizes = zip(x.shape[1:-1], window, *moves, strict=True)
    return tuple((n - (k - 1) * d - 1) // s + 1 for n, k, s, d in sizes)


def cut(x: Any, at: tuple[int, ...], side: tuple[int, ...], moves: Moves) -> Any:
    """What one pixel of the window sees, at every place of it."""
    for axis, (k, n, s, d) in enumerate(zip(at, side, *moves, strict=True), 1):
        x = lax.slice_in_dim(x, k * d, k * d + (n - 1) * s + 1, s, axis)
    return x


def put(d: Any, at: tuple[int, ...], pixels: tuple[int, ...], moves: Moves) -> Any:
    """Put back what was cut, with zeros around it: the transpose of `cut`."""
    sizes = zip(at, pixels, d.shape[1:-1], *moves, strict=True)
    around = [(k * g, size - k * g - (n - 1) * s - 1, s - 1) for k, size, n, s, g in sizes]
    return lax.pad(d, jnp.zeros((), d.dtype), [(0, 0, 0), *around, (0, 0, 0)])


def _windows(x: Any, window: tuple[int, ...], moves: Moves) -> Any:
    """What every result sees, (pixels of the window times in, pixels of all images)."""
    side = sides(x, window, moves)
    if jax.default_backend() == "gpu":
        x = lax.optimization_barrier(x)  # or it is computed again for every slice
    # One axis after the other, the last first: all at once would be written twice.
    for axis in reversed(range(len(window))):
        s, d, n = moves.strides[axis], moves.dilation[axis], side[axis]
        ends = [(k * d, k * d + (n - 1) * s + 1) for k in range(window[axis])]
        x = jnp.concatenate([lax.slice_in_dim(x, *end, s, axis + 1) for end in ends])
    return x.reshape(len(x), -1)


def _places(window: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, window)))


def _matrix(w: Any) -> Any:
    return w.reshape(-1, w.shape[-1])

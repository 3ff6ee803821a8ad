"""Convolution and pooling for a GPU: images last, pixels before them.

The four results that pooling chooses from lie within 4 x 4 pixels, so a convolution is
one product of all such windows with weights for the four of them. With other weights
for every client a product is what a device does best, and these windows are less than
half the memory of the 3 x 3 surroundings of every pixel. Time goes into moving memory:
XLA would compute again what it could read, so barriers say what is to be written.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

BOTH = (0, 1)


def images_last(x):
    """Turn (images, rows, columns, channels) to (channels, rows, columns, images)."""
    count, *shape = x.shape
    x = lax.optimization_barrier(x.reshape(count, -1))
    return x.T.reshape(*shape, count).transpose(2, 0, 1, 3)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def convolve_and_pool(x, w, b, padding=1):
    """Convolve 3 x 3, add b, keep the largest of every 2 x 2 and what is positive.

    The gradient goes to the first of equals, as in PyTorch.
    """
    return _forward(x, w, b, padding)[0]


def _forward(x, w, b, padding):
    near, half = _windows(x, padding)
    four = (_spread(w) @ near).reshape(4, -1, half, half, x.shape[-1])
    top = jnp.maximum(
        jnp.maximum(four[0], four[1]), jnp.maximum(four[2], four[3])
    )  # a reduction would run on its own
    place = jnp.full(top.shape, 3, jnp.int8)
    for k in (2, 1, 0):
        place = jnp.where(four[k] == top, jnp.int8(k), place)
    y = top + b[:, None, None, None]
    winner = jnp.where(y > 0, place, jnp.int8(4))
    y, winner = lax.optimization_barrier((jax.nn.relu(y), winner))
    return y, (near, w, winner)


def _backward(padding, kept, g):
    near, w, winner = kept
    place = jnp.arange(4, dtype=winner.dtype).reshape(4, 1, 1, 1, 1)
    four = jnp.where(winner == place, g, 0).reshape(-1, near.shape[1])
    dw = _gather(lax.dot_general(four, near, (((1,), (1,)), ((), ()))), w.shape)
    dnear = lax.dot_general(_spread(w), four, (((0,), (0,)), ((), ())))
    dnear = dnear.reshape(2, 2, 2, 2, w.shape[2], *g.shape[1:])
    db = jnp.where(winner < 4, g, 0).sum((1, 2, 3))
    return _unwindow(dnear, padding), dw, db


convolve_and_pool.defvjp(_forward, _backward)


def _windows(x, padding):
    """The 4 x 4 windows two pixels apart, (16 channels, windows of all images), and how
    many there are in a row.

    A window is 2 x 2 blocks of 2 x 2 pixels: which block comes first, then which pixel.
    """
    channels, side, _, count = x.shape
    half = (side + 2 * padding - 2) // 2
    around = padding, padding
    x = jnp.pad(x, ((0, 0), around, around, (0, 0)))
    x = x.reshape(channels, half + 1, 2, half + 1, 2, count).transpose(2, 4, 0, 1, 3, 5)
    x = lax.optimization_barrier(x)
    # XLA joins up to four arrays fast, and more than that slowly.
    near = [x[..., i : i + half, j : j + half, :] for i in BOTH for j in BOTH]
    return jnp.concatenate(near).reshape(16 * channels, -1), half


def _unwindow(d, padding):
    """Sum over the windows a pixel is part of: the transpose of _windows."""

    def pixel(p, q):
        moved = (
            jnp.pad(d[i, j, p, q], ((0, 0), (i, 1 - i), (j, 1 - j), (0, 0)))
            for i in BOTH
            for j in BOTH
        )
        return sum(moved)

    x = jnp.stack([jnp.stack([pixel(p, q) for q in BOTH], 3) for p in BOTH], 2)
    channels, rows, *_, count = x.shape
    x = x.reshape(channels, 2 * rows, 2 * rows, count)
    inside = slice(padding, 2 * rows - padding)
    return x[:, inside, inside]


def _spread(w):
    """Weights of the four results where each has them in the window, a row each."""
    four = [
        jnp.pad(w, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in BOTH for j in BOTH
    ]
    w = jnp.stack(four).reshape(4, 2, 2, 2, 2, *w.shape[2:])
    return w.transpose(0, 6, 1, 3, 2, 4, 5).reshape(4 * w.shape[-1], -1)


def _gather(d, shape):
    """Sum over the four results: the transpose of _spread."""
    *_, channels, out = shape
    d = d.reshape(2, 2, out, 2, 2, 2, 2, channels).transpose(0, 1, 3, 5, 4, 6, 7, 2)
    d = d.reshape(2, 2, 4, 4, channels, out)
    return sum(d[i, j, i : i + 3, j : j + 3] for i in BOTH for j in BOTH)

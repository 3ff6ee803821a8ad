"""Convolution and pooling for a CPU: images last, pixels before them.

The same pixel of all images lies side by side, so that shifting, pooling and their
gradients move whole rows, and a convolution is one product of matrices, (out, 9 in) by
(9 in, pixels of all images). What XLA makes of some forms is the reason for others.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


def images_last(x):
    """Turn (images, rows, columns, channels) to (channels, rows, columns, images)."""
    return x.transpose(3, 1, 2, 0)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def convolve_and_pool(x, w, b, padding=1):
    """Convolve 3 x 3, add b, keep the largest of every 2 x 2 and what is positive.

    The gradient goes to the first of equals, as in PyTorch.
    """
    return _forward(x, w, b, padding)[0]


def _forward(x, w, b, padding):
    near = patches(x, padding)
    # XLA would fold a plain w.T into the product, and then take a slower one.
    parts = jnp.split(_matrix(w), 3)
    rows = jnp.concatenate([part.T for part in parts], axis=1)
    side = x.shape[1] + 2 * padding - 2
    y = (rows @ near).reshape(-1, side, side, x.shape[-1])
    # XLA computes cheap things again for everyone who reads them, though not what has
    # been concatenated: so do it by halves.
    halves = zip(jnp.split(y, 2), jnp.split(b, 2), strict=True)
    winner = jnp.concatenate([_winner(*half) for half in halves])
    return jax.nn.relu(_largest(y) + _column(b)), (near, w, winner)


def _backward(padding, kept, g):
    near, w, winner = kept
    g = jnp.where(winner < 4, g, 0)
    place = jnp.arange(4, dtype=winner.dtype).reshape(2, 1, 2, 1)
    dy = jnp.where(winner[:, :, None, :, None] == place, g[:, :, None, :, None], 0)
    dy = dy.reshape(len(g), -1)
    dw = lax.dot_general(near, dy, (((1,), (1,)), ((), ())))
    side = 2 * g.shape[1]
    dx = _unpatch((_matrix(w) @ dy).reshape(9, -1, side, side, g.shape[-1]), padding)
    return dx, dw.reshape(w.shape), g.sum((1, 2, 3))


convolve_and_pool.defvjp(_forward, _backward)


def patches(x, padding=1):
    """The 3 x 3 surroundings of every pixel: (9 channels, pixels of all images)."""
    if padding:
        x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    side = x.shape[1] - 2
    # First columns, then rows: nine at once would be written twice.
    x = jnp.concatenate([x[:, :, j : j + side] for j in range(3)])
    x = jnp.concatenate([x[:, i : i + side] for i in range(3)])
    return x.reshape(len(x), -1)


def _unpatch(d, padding):
    """Sum over the nine patches a pixel is part of: the transpose of patches."""
    zero = jnp.zeros((), d.dtype)

    def moved(i, j):
        rows, columns = ((k - padding, 2 - padding - k, 0) for k in (i, j))
        return lax.pad(d[3 * i + j], zero, ((0, 0, 0), rows, columns, (0, 0, 0)))

    return sum(moved(i, j) for i in range(3) for j in range(3))


def _quarters(y):
    """The four pixels of every 2 x 2."""
    return [y[:, i::2, j::2] for i in range(2) for j in range(2)]


def _largest(y):
    a, b, c, d = _quarters(y)
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


def _winner(y, b):
    """Which pixel of every 2 x 2 is the largest; 4 where none is positive."""
    top = _largest(y)
    place = jnp.full(top.shape, 3)
    for k in (2, 1, 0):
        place = jnp.where(_quarters(y)[k] == top, k, place)
    return jnp.where(top + _column(b) > 0, place, 4).astype(jnp.int8)


def _matrix(w):
    return w.reshape(-1, w.shape[-1])


def _column(b):
    return b[:, None, None, None]

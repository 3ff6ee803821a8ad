"""ATen's pools and resampling, in jax.

Resampling, and averages over windows of any size, are linear along each axis: a small
matrix per axis says all, and its transpose is the gradient.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax


def _full(sizes, n):
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    return sizes * (n if len(sizes) == 1 else 1)


def _geometry(x, n, kernel, stride, padding, dilation, ceil_mode):
    """Windows over the last n axes, the steps between them, and padding of x."""
    kernel, padding = _full(kernel, n), _full(padding, n)
    stride = _full(stride, n) if stride else kernel
    ends = []
    for size, k, s, p, d in zip(
        x.shape[-n:], kernel, stride, padding, _full(dilation, n), strict=True
    ):
        room = size + 2 * p - d * (k - 1) - 1
        count = room // s + 1
        if ceil_mode and room % s and count * s < size + p:
            count += 1  # one more, that begins within the image or left of it
        ends.append((p, max((count - 1) * s + d * (k - 1) + 1 - size - p, 0)))
    one = [1] * (x.ndim - n)
    none = [(0, 0)] * (x.ndim - n)
    return one + kernel, one + stride, none + ends, one + _full(dilation, n)


def max_pool(n):
    def pool(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        window, steps, ends, apart = _geometry(x, n, kernel, stride, padding, dilation, ceil_mode)
        if max(apart) > 1:
            return _dilated_max(x, window, steps, ends, apart), None
        least = np.array(-np.inf, x.dtype)
        return lax.reduce_window(x, least, lax.max, window, steps, ends), None

    return pool


def _dilated_max(x, window, steps, ends, apart):
    """The largest of shifted copies: jax has no gradient of dilated windows."""
    x = jnp.pad(x, ends, constant_values=-np.inf)
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape, window, steps, apart, strict=True)
    ]
    shifts = [
        lax.slice(
            x,
            start := [d * i for d, i in zip(apart, at, strict=True)],
            [a + s * (n - 1) + 1 for a, s, n in zip(start, steps, counts, strict=True)],
            steps,
        )
        for at in np.ndindex(*window)
    ]
    return jnp.max(jnp.stack(shifts), 0)


def avg_pool(n):
    def pool(
        x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True,
        divisor_override=None,
    ):  # fmt: skip
        window, steps, ends, _ = _geometry(x, n, kernel, stride, padding, 1, ceil_mode)
        zero = np.zeros((), x.dtype)
        total = lax.reduce_window(x, zero, lax.add, window, steps, ends)
        if divisor_override:
            return total / divisor_override
        there = np.ones(x.shape[-n:], x.dtype)
        if count_include_pad:
            there = np.pad(there, [(p, p) for p in _full(padding, n)], constant_values=1)
            more = [(0, max(b - a, 0)) for a, b in ends[-n:]]
        else:
            more = ends[-n:]
        count = lax.reduce_window(there, zero, lax.add, window[-n:], steps[-n:], more)
        return total / count

    return pool


def _along(x, axis, matrix):
    """Multiply along one axis."""
    y = jnp.tensordot(x, matrix.astype(x.dtype), ((axis,), (1,)))
    return jnp.moveaxis(y, -1, axis)


def _share(size, into):
    """Rows that average windows as even as they can be."""
    at = np.arange(size)
    first = [i * size // into for i in range(into)]
    last = [-(-(i + 1) * size // into) for i in range(into)]
    rows = [(at >= a) & (at < b) for a, b in zip(first, last, strict=True)]
    return np.array([row / row.sum() for row in rows])


def adaptive_avg_pool(n):
    def pool(x, sizes):
        for axis, into in enumerate(_full(sizes, n), x.ndim - n):
            x = _along(x, axis, _share(x.shape[axis], into))
        return x

    return pool


def adaptive_max_pool(n):
    def pool(x, sizes):
        for axis, into in enumerate(_full(sizes, n), x.ndim - n):
            if x.shape[axis] % into:
                raise NotImplementedError("adaptive_max_pool into uneven windows")
            apart = (*x.shape[:axis], into, -1, *x.shape[axis + 1 :])
            x = x.reshape(apart).max(axis + 1)
        return x, None

    return pool


def _cubic(distance):
    d, a = np.abs(distance), -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _weights(kind, size, into, corners, scale):
    """Row i: what output i is of the inputs."""
    step = 1 / scale if scale else size / into
    at = np.arange(into)
    if kind == "nearest":
        near = np.minimum(np.floor(at * np.float32(step)).astype(int), size - 1)
        return np.eye(size)[near]
    if corners:
        at = at * ((size - 1) / (into - 1) if into > 1 else 0.0)
    else:
        at = (at + 0.5) * step - 0.5
        at = np.maximum(at, 0) if kind == "linear" else at
    low, rows = np.floor(at).astype(int), np.zeros((into, size))
    for shift in (0, 1) if kind == "linear" else (-1, 0, 1, 2):
        apart = at - (low + shift)
        part = 1 - np.abs(apart) if kind == "linear" else _cubic(apart)
        np.add.at(rows, (np.arange(into), np.clip(low + shift, 0, size - 1)), part)
    return rows


def upsample(kind, n):
    def sample(x, sizes, *how):
        corners, scales = (False, *how) if kind == "nearest" else how
        for i, axis in enumerate(range(x.ndim - n, x.ndim)):
            scale = scales[i] if scales else None
            size = x.shape[axis]
            into = int(sizes[i] if sizes else size * scale)
            x = _along(x, axis, _weights(kind, size, into, corners, scale))
        return x

    return sample


POOLING = {
    **{f"max_pool{n}d_with_indices": max_pool(n) for n in (1, 2, 3)},
    "max_pool2d": lambda *given: max_pool(2)(*given)[0],
    **{f"avg_pool{n}d": avg_pool(n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": adaptive_avg_pool(n) for n in (2, 3)},
    **{f"adaptive_avg_pool{n}d": adaptive_avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": adaptive_max_pool(n) for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d.vec": upsample("nearest", n) for n in (1, 2, 3)},
    "upsample_linear1d.vec": upsample("linear", 1),
    "upsample_bilinear2d.vec": upsample("linear", 2),
    "upsample_trilinear3d.vec": upsample("linear", 3),
    "upsample_bicubic2d.vec": upsample("cubic", 2),
}

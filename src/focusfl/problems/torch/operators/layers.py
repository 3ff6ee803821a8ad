"""ATen's operators for layers of networks, in jax: products, norms, embeddings, pools, resampling.

Resampling, and averages over windows of any size, are linear along each axis: a small matrix
per axis defines them, and its transpose their gradient.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from focusfl.problems.torch.operators.arrays import gather


def linear(x, weight, bias=None):
    y = x @ weight.T
    return y if bias is None else y + bias


def addmm(a, b, c, beta=1, alpha=1):
    return beta * a + alpha * (b @ c)


def einsum(equation, arrays, path=None):
    del path
    return jnp.einsum(equation, *arrays)


def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    n = x.ndim - 2

    def full(sizes):
        return list(sizes) * (n if len(sizes) == 1 else 1)

    stride, dilation, padding = full(stride), full(dilation), full(padding)
    ends, spread = [(p, p) for p in padding], [1] * n
    if transposed:
        # The gradient of a convolution: zeros between pixels, and the kernel flipped.
        spread, stride = stride, spread
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        ends = [
            (r - p, r - p + more)
            for r, p, more in zip(reach, padding, full(output_padding), strict=True)
        ]
        into, out, *kernel = weight.shape
        weight = weight.reshape(groups, into // groups, out, *kernel).swapaxes(1, 2)
        weight = weight.reshape(groups * out, into // groups, *kernel)
        weight = jnp.flip(weight, range(2, 2 + n))
    space = "DHW"[-n:]
    y = lax.conv_general_dilated(
        x, weight, stride, ends, spread, dilation,
        ("NC" + space, "OI" + space, "NC" + space), groups,
    )  # fmt: skip
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


def plain_convolution(
    x, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1
):  # fmt: skip
    """Convolve images, or a single image without an axis of images."""
    options = weight, bias, stride, padding, dilation, False, (0,), groups
    if x.ndim < weight.ndim:
        return convolution(x[None], *options)[0]
    return convolution(x, *options)


def cross_entropy(scores, targets, weight=None, reduction=1, ignore_index=-100, smoothing=0.0):
    """Take targets as classes or, if they are floats, as shares of classes along axis 1."""
    axis = min(1, scores.ndim - 1)
    classes = scores.shape[axis]
    logs = jax.nn.log_softmax(scores, axis)
    weighted = logs
    if weight is not None:
        weighted = logs * weight.reshape([-1 if i == axis else 1 for i in range(scores.ndim)])
    if jnp.issubdtype(targets.dtype, jnp.floating):
        shares = targets * (1 - smoothing) + smoothing / classes
        losses = -(weighted * shares).sum(axis)
        weights = jnp.ones_like(losses)
    else:
        counted = targets != ignore_index
        at = jnp.where(counted, targets, 0)
        losses = -gather(weighted, axis, jnp.expand_dims(at, axis)).squeeze(axis)
        if smoothing:
            losses = losses * (1 - smoothing) - weighted.sum(axis) * (smoothing / classes)
        weights = counted if weight is None else jnp.where(counted, weight[at], 0)
        losses = jnp.where(counted, losses, 0)
    if reduction == 0:
        return losses
    return losses.sum() / (weights.sum().astype(losses.dtype) if reduction == 1 else 1)


def _normalised(x, axes, eps):
    centred = x - x.mean(axes, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(axes, keepdims=True) + eps)


def _scaled(x, weight, bias, shape=(-1,)):
    if weight is not None:
        x = x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _channels(x):
    return (-1, *[1] * (x.ndim - 2))


def layer_norm(x, shape, weight, bias, eps):
    y = _normalised(x, tuple(range(-len(shape), 0)), eps)
    return _scaled(y, weight, bias, shape), None, None


def group_norm(x, weight, bias, batch, channels, size, groups, eps):
    del size
    apart = x.reshape(batch, groups, channels // groups, *x.shape[2:])
    y = _normalised(apart, tuple(range(2, apart.ndim)), eps).reshape(x.shape)
    return _scaled(y, weight, bias, _channels(x)), None, None


def batch_norm(x, weight, bias, mean, variance, momentum, eps):
    """Normalise by running statistics."""
    del momentum
    form = _channels(x)
    y = (x - mean.reshape(form)) * lax.rsqrt(variance.reshape(form) + eps)
    return _scaled(y, weight, bias, form), None, None


def batch_norm_no_stats(x, weight, bias, training, momentum, eps):
    """Normalise by statistics over all axes but 1, on which instance norm has its images."""
    del training, momentum
    y = _normalised(x, (0, *range(2, x.ndim)), eps)
    return _scaled(y, weight, bias, _channels(x)), None, None


def rms_norm(x, shape, weight=None, eps=None):
    eps = jnp.finfo(x.dtype).eps if eps is None else eps
    axes = tuple(range(-len(shape), 0))
    y = x * lax.rsqrt((x**2).mean(axes, keepdims=True) + eps)
    return y if weight is None else y * weight


def embedding(weight, at, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """Look up rows; the row of padding gets no gradient."""
    del sparse
    if scale_grad_by_freq:
        raise NotImplementedError("embedding with scale_grad_by_freq")
    rows = weight[at]
    if padding_idx < 0:
        return rows
    return jnp.where((at == padding_idx)[..., None], lax.stop_gradient(rows), rows)


def embedding_bag(
    weight, at, offsets, scale_grad_by_freq=False, mode=0, sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=-1,
):  # fmt: skip
    """Look up rows and sum (mode 0) or average (mode 1) those of each bag."""
    if mode == 2 or scale_grad_by_freq:
        raise NotImplementedError("embedding_bag by its maximum or frequencies")
    bags = len(offsets) - include_last_offset
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(len(at)), "right") - 1
    counted = jnp.ones(len(at), weight.dtype)
    if padding_idx >= 0:
        counted = jnp.where(at == padding_idx, 0, counted)
    scale = counted if per_sample_weights is None else counted * per_sample_weights
    rows = embedding(weight, at, padding_idx) * scale[:, None]
    total = jax.ops.segment_sum(rows, bag, bags)
    if mode == 1:
        there = jax.ops.segment_sum(counted, bag, bags)
        total = total / jnp.maximum(there, 1)[:, None]
    return total, None, None, None


def _full(sizes, n):
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    return sizes * (n if len(sizes) == 1 else 1)


def _geometry(x, n, kernel, stride, padding, dilation, ceil_mode):
    """Return windows over the last n axes, their strides, padding and dilation, for all axes."""
    kernel, padding = _full(kernel, n), _full(padding, n)
    stride = _full(stride, n) if stride else kernel
    ends = []
    for size, k, s, p, d in zip(
        x.shape[-n:], kernel, stride, padding, _full(dilation, n), strict=True
    ):
        room = size + 2 * p - d * (k - 1) - 1
        count = room // s + 1
        if ceil_mode and room % s and count * s < size + p:
            count += 1  # a last window, which begins within the image or its left padding
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
    """Take the largest of shifted copies, as jax has no gradient of dilated windows."""
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
    """Multiply by a matrix along one axis."""
    y = jnp.tensordot(x, matrix.astype(x.dtype), ((axis,), (1,)))
    return jnp.moveaxis(y, -1, axis)


def _share(size, into):
    """Return rows that average windows of sizes as equal as possible."""
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
    """Return the weights of the inputs in every output: (into, size)."""
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


LAYERS: dict[str, Callable] = {
    "_embedding_bag": embedding_bag, "_embedding_bag_forward_only": embedding_bag,
    "_fused_rms_norm": lambda *args: (rms_norm(*args), None),
    "_native_batch_norm_legit": batch_norm_no_stats,
    "_native_batch_norm_legit_no_training": batch_norm, "addmm": addmm,
    "baddbmm": addmm, "bmm": jnp.matmul, 
    **{f"conv{n}d": plain_convolution for n in (1, 2, 3)}, "convolution": convolution,
    "cross_entropy_loss": cross_entropy, "dot": jnp.dot,
    "einsum": einsum, "embedding": embedding, "linear": linear, "matmul": jnp.matmul,
    "mm": jnp.matmul, "mv": jnp.matmul, "native_group_norm": group_norm,
    "native_layer_norm": layer_norm, "outer": jnp.outer, "rms_norm": rms_norm,
    **{f"max_pool{n}d_with_indices": max_pool(n) for n in (1, 2, 3)},
    "max_pool2d": lambda *args: max_pool(2)(*args)[0],
    **{f"avg_pool{n}d": avg_pool(n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": adaptive_avg_pool(n) for n in (2, 3)},
    **{f"adaptive_avg_pool{n}d": adaptive_avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": adaptive_max_pool(n) for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d.vec": upsample("nearest", n) for n in (1, 2, 3)},
    "upsample_linear1d.vec": upsample("linear", 1),
    "upsample_bilinear2d.vec": upsample("linear", 2),
    "upsample_trilinear3d.vec": upsample("linear", 3),
    "upsample_bicubic2d.vec": upsample("cubic", 2),
}  # fmt: skip

"""ATen's operators that networks are made of, in jax: products, norms, attention."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
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
        # The gradient of a convolution: the image spread out, the kernel turned round.
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
    """Convolve images, or a single one without an axis for several."""
    given = weight, bias, stride, padding, dilation, False, (0,), groups
    if x.ndim < weight.ndim:
        return convolution(x[None], *given)[0]
    return convolution(x, *given)


def cross_entropy(scores, targets, weight=None, reduction=1, ignore_index=-100, smoothing=0.0):
    """Targets are classes or, as floats, the share of each class, along axis 1 of scores."""
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
    """By statistics that are known."""
    del momentum
    form = _channels(x)
    y = (x - mean.reshape(form)) * lax.rsqrt(variance.reshape(form) + eps)
    return _scaled(y, weight, bias, form), None, None


def batch_norm_no_stats(x, weight, bias, training, momentum, eps):
    """By the statistics of all but axis 1; instance norm puts its images there."""
    del training, momentum
    y = _normalised(x, (0, *range(2, x.ndim)), eps)
    return _scaled(y, weight, bias, _channels(x)), None, None


def rms_norm(x, shape, weight=None, eps=None):
    eps = jnp.finfo(x.dtype).eps if eps is None else eps
    axes = tuple(range(-len(shape), 0))
    y = x * lax.rsqrt((x**2).mean(axes, keepdims=True) + eps)
    return y if weight is None else y * weight


def embedding(weight, at, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """The row of padding gets no gradient."""
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
    """Rows by their places, summed (mode 0), averaged (1) or maximised (2) by bag."""
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


LAYERS: dict[str, Callable] = {
    "_embedding_bag": embedding_bag, "_embedding_bag_forward_only": embedding_bag,
    "_fused_rms_norm": lambda *given: (rms_norm(*given), None),
    "_native_batch_norm_legit": batch_norm_no_stats,
    "_native_batch_norm_legit_no_training": batch_norm, "addmm": addmm,
    "baddbmm": addmm, "bmm": jnp.matmul, 
    **{f"conv{n}d": plain_convolution for n in (1, 2, 3)}, "convolution": convolution,
    "cross_entropy_loss": cross_entropy, "dot": jnp.dot,
    "einsum": einsum, "embedding": embedding, "linear": linear, "matmul": jnp.matmul,
    "mm": jnp.matmul, "mv": jnp.matmul, "native_group_norm": group_norm,
    "native_layer_norm": layer_norm, "outer": jnp.outer, "rms_norm": rms_norm,
}  # fmt: skip

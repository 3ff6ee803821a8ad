"""ATen's elementwise operators, in jax.

Where PyTorch's gradient is finite, that of jax must be too: an expression that overflows gets
a harmless argument where `where` does not choose it.
"""

import jax
import jax.numpy as jnp


def add(a, b, alpha=1):
    return a + (b if alpha == 1 else alpha * b)


def sub(a, b, alpha=1):
    return a - (b if alpha == 1 else alpha * b)


def div(a, b, rounding_mode=None):
    if rounding_mode is None:
        return a / b
    return jnp.floor(a / b) if rounding_mode == "floor" else jnp.trunc(a / b)


def power(a, b):
    whole = isinstance(b, float) and b.is_integer()
    return jnp.power(a, int(b) if whole else b)


def clamp(a, min=None, max=None):
    # The gradient at a bound itself passes, as in PyTorch.
    if min is not None:
        a = jnp.where(a < min, min, a)
    return a if max is None else jnp.where(a > max, max, a)


def hardtanh(a, min=-1.0, max=1.0):
    return jnp.where(a <= min, min, jnp.where(a >= max, max, a))


def elu(a, alpha=1.0, scale=1.0, input_scale=1.0):
    low = jnp.where(a > 0, 0, a)
    return scale * jnp.where(a > 0, a, alpha * jnp.expm1(low * input_scale))


def softplus(a, beta=1.0, threshold=20.0):
    large = a * beta > threshold
    low = jnp.where(large, 0, a)
    return jnp.where(large, a, jnp.log1p(jnp.exp(low * beta)) / beta)


def prelu(a, weight):
    """Apply one slope to all, or one to each channel, which is axis 1."""
    if weight.size > 1 and a.ndim > 1:
        weight = weight.reshape(-1, *[1] * (a.ndim - 2))
    return jnp.where(a > 0, a, a * weight)


def binary_cross_entropy(a, target, weight=None, reduction=1):
    """Clip logarithms at -100, as PyTorch does."""

    def log(p):
        finite = jnp.log(jnp.where(p > 0, p, 1))
        return jnp.where(p > 0, jnp.maximum(finite, -100), -100)

    losses = -(target * log(a) + (1 - target) * log(1 - a))
    losses = losses if weight is None else losses * weight
    return (lambda v: v, jnp.mean, jnp.sum)[reduction](losses)


def same(a, *_):
    return a


ELEMENTWISE = {
    **{
        name: getattr(jnp, name)
        for name in (
            "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh",
            "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil",
            "copysign", "cos", "cosh", "exp", "exp2", "expm1", "floor",
            "floor_divide", "fmax", "fmin", "fmod", "hypot", "isfinite", "isinf",
            "isnan", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
            "logical_not", "logical_or", "logical_xor", "maximum", "minimum",
            "nan_to_num", "reciprocal", "remainder", "round", "sign", "sin", "sinc",
            "sinh", "sqrt", "square", "tan", "tanh", "trunc",
        )
    },
    "add": add, "binary_cross_entropy": binary_cross_entropy, "clamp": clamp, "clamp_min": clamp,
    "div": div, "elu": elu, "eq": jnp.equal, "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc, "erfinv": jax.scipy.special.erfinv, "ge": jnp.greater_equal,
    "gt": jnp.greater, "hardtanh": hardtanh, "le": jnp.less_equal,
    "lgamma": jax.scipy.special.gammaln, "lt": jnp.less, "max.other": jnp.maximum,
    "min.other": jnp.minimum, "mul": jnp.multiply, "ne": jnp.not_equal, "neg": jnp.negative,
    "pow": power, "prelu": prelu, "relu": jax.nn.relu, "rsqrt": jax.lax.rsqrt, "sgn": jnp.sign,
    "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu, "softplus": softplus, "sub": sub,
    "xlogy": jax.scipy.special.xlogy,
    "_log_softmax": lambda a, dim, *_: jax.nn.log_softmax(a, dim),
    "_softmax": lambda a, dim, *_: jax.nn.softmax(a, dim),
    "addcdiv": lambda a, b, c, value=1: a + value * b / c,
    "addcmul": lambda a, b, c, value=1: a + value * b * c,
    "celu": lambda a, alpha=1.0: elu(a, alpha, 1.0, 1 / alpha),
    "clamp_max": lambda a, top: clamp(a, max=top),
    "copy": lambda a, b, *_: jnp.broadcast_to(b, a.shape),
    "detach": lambda a: jax.lax.stop_gradient(a),
    "gelu": lambda a, approximate="none": jax.nn.gelu(a, approximate=approximate == "tanh"),
    "hardsigmoid": lambda a: hardtanh(a + 3, 0, 6) / 6,
    "hardswish": lambda a: a * clamp(a + 3, 0, 6) / 6,
    "leaky_relu": lambda a, slope=0.01: jnp.where(a > 0, a, a * slope),
    "lerp": lambda a, b, weight: a + weight * (b - a),
    "log_sigmoid_forward": lambda a: (jax.nn.log_sigmoid(a), None),
    "masked_fill": lambda a, mask, value: jnp.where(mask, value, a),
    "mish": lambda a: a * jnp.tanh(softplus(a)),
    "rsub": lambda a, b, alpha=1: b - alpha * a,
    "where": lambda condition, a=None, b=None: jnp.where(condition, a, b),
    # Copies and casts: every result is cast to the type it has in PyTorch anyway.
    "_to_copy": same, "alias": same, "clone": same, "contiguous": same, "to.dtype": same,
    "lift_fresh_copy": same, "to": same,
}  # fmt: skip

"""ATen's operators that work number by number, in jax.

Where PyTorch's gradient is finite ours must be too: an expression that overflows is
given a harmless argument on the side of a `where` that it is not used on.
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


def leaky_relu(a, slope=0.01):
    return jnp.where(a > 0, a, a * slope)


def elu(a, alpha=1.0, scale=1.0, input_scale=1.0):
    low = jnp.where(a > 0, 0, a)
    return scale * jnp.where(a > 0, a, alpha * jnp.expm1(low * input_scale))


def celu(a, alpha=1.0):
    return elu(a, alpha, 1.0, 1 / alpha)


def softplus(a, beta=1.0, threshold=20.0):
    large = a * beta > threshold
    low = jnp.where(large, 0, a)
    return jnp.where(large, a, jnp.log1p(jnp.exp(low * beta)) / beta)


def mish(a):
    return a * jnp.tanh(softplus(a))


def gelu(a, approximate="none"):
    return jax.nn.gelu(a, approximate=approximate == "tanh")


def prelu(a, weight):
    """One slope for all, or one per channel, which is axis 1."""
    if weight.size > 1 and a.ndim > 1:
        weight = weight.reshape(-1, *[1] * (a.ndim - 2))
    return jnp.where(a > 0, a, a * weight)


def hardsigmoid(a):
    return hardtanh(a + 3, 0, 6) / 6


def hardswish(a):
    return a * clamp(a + 3, 0, 6) / 6


def log_sigmoid(a):
    return jax.nn.log_sigmoid(a), None


def softmax(a, dim, *_):
    return jax.nn.softmax(a, dim)


def log_softmax(a, dim, *_):
    return jax.nn.log_softmax(a, dim)


def where(condition, a=None, b=None):
    return jnp.where(condition, a, b)


def masked_fill(a, mask, value):
    return jnp.where(mask, value, a)


def binary_cross_entropy(a, target, weight=None, reduction=1):
    """Logarithms end at -100, as in PyTorch."""

    def log(p):
        there = jnp.log(jnp.where(p > 0, p, 1))
        return jnp.where(p > 0, jnp.maximum(there, -100), -100)

    losses = -(target * log(a) + (1 - target) * log(1 - a))
    losses = losses if weight is None else losses * weight
    return (lambda v: v, jnp.mean, jnp.sum)[reduction](losses)


def addcmul(a, b, c, value=1):
    return a + value * b * c


def addcdiv(a, b, c, value=1):
    return a + value * b / c


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
    "_log_softmax": log_softmax, "_softmax": softmax, "add": add, "addcdiv": addcdiv,
    "addcmul": addcmul, "binary_cross_entropy": binary_cross_entropy, "celu": celu,
    "clamp": clamp, "clamp_max": lambda a, top: clamp(a, max=top),
    "clamp_min": clamp, "div": div, "elu": elu, "eq": jnp.equal,
    "erf": jax.scipy.special.erf, "erfc": jax.scipy.special.erfc,
    "erfinv": jax.scipy.special.erfinv, "ge": jnp.greater_equal, "gelu": gelu,
    "gt": jnp.greater, "hardsigmoid": hardsigmoid, "hardswish": hardswish,
    "hardtanh": hardtanh, "le": jnp.less_equal, "leaky_relu": leaky_relu,
    "lerp": lambda a, b, weight: a + weight * (b - a),
    "lgamma": jax.scipy.special.gammaln, "log_sigmoid_forward": log_sigmoid,
    "lt": jnp.less, "masked_fill": masked_fill, "max.other": jnp.maximum,
    "min.other": jnp.minimum, "mish": mish, "mul": jnp.multiply, "ne": jnp.not_equal,
    "neg": jnp.negative, "pow": power, "prelu": prelu, "relu": jax.nn.relu,
    "rsqrt": jax.lax.rsqrt, "rsub": lambda a, b, alpha=1: b - alpha * a,
    "sgn": jnp.sign, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu,
    "softplus": softplus, "sub": sub, "where": where,
    "xlogy": jax.scipy.special.xlogy,
    # Copies, and changes of type alone: every result is given its own type anyway.
    "_to_copy": same, "alias": same, "clone": same, "contiguous": same, "to.dtype": same,
    "detach": lambda a: jax.lax.stop_gradient(a), "lift_fresh_copy": same,
    "to": same, "copy": lambda a, b, *_: jnp.broadcast_to(b, a.shape),
}  # fmt: skip

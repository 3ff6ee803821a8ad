"""Equations of a jaxpr on values whose images come last (`Moved`).

A rule returns None where an equation has to run on plain values.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from focusfl.problems.convolutions.products import (
    Moves,
    convolve,
    convolve_blocks,
    join,
    largest,
    largest_of_blocks,
    split,
    total,
)

MAX_WINDOW = 127  # pixels, as the number of a pixel is an int8
ELEMENTWISE = frozenset(
    "abs acos add add_any and asin atan atan2 cbrt ceil clamp convert_element_type cos "
    "cosh copy copy_p div eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow "
    "is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not or pow "
    "real reduce_precision rem round rsqrt select_n sign sin sinh sqrt square "
    "stop_gradient sub tan tanh xor".split()
)

IN_BLOCKS = ("reduce_window_max", "reduce_window_sum", "transpose")  # can work on blocks
ALWAYS = ("conv_general_dilated", "transpose")  # rewritten whatever their operands are

Rule = Callable[[Any, list[Any]], Any]


class Moved(NamedTuple):
    """A value whose array has its axes in another order: (channels, *pixels, images).

    Axis i of the array is axis `order[i]` of the value. With `blocks` of 2, the pixels of
    every 2 x 2 come first: (2, 2, channels, *half the pixels, images).
    """

    array: Any
    order: tuple[int, ...]
    blocks: int = 1


def plain(value: Any) -> Any:
    """Return a value as an array with its axes in their own order."""
    if not isinstance(value, Moved):
        return value
    order = value.order
    back = [order.index(axis) for axis in range(len(order))]
    return jnp.transpose(unblocked(value).array, back)


def stored(value: Any, order: tuple[int, ...], blocks: int = 1) -> Any:
    """Return the array of a value in this order of axes; a scalar stays as it is."""
    if jnp.ndim(value.array if isinstance(value, Moved) else value) == 0:
        return value
    if isinstance(value, Moved):
        if (value.order, value.blocks) == (order, blocks):
            return value.array
        value = unblocked(value)
        array = jnp.transpose(value.array, [value.order.index(axis) for axis in order])
    else:
        array = jnp.transpose(value, order)
    return array if blocks == 1 else split(array)


def unblocked(value: Moved) -> Moved:
    """Return the same value without blocks."""
    return value if value.blocks == 1 else Moved(join(value.array), value.order)


def apply(eqn: Any, args: list[Any]) -> Any:
    """Evaluate an equation on moved values; return None if it has to be bound as it is."""
    name = eqn.primitive.name
    if name in ELEMENTWISE:
        return _elementwise(eqn, args)
    if name not in IN_BLOCKS:
        args = [unblocked(a) if isinstance(a, Moved) else a for a in args]
    rule = RULES.get(name)
    return rule(eqn, args) if rule else None


def is_elementwise(eqn: Any) -> bool:
    """Whether a function inside an equation is elementwise, on arrays of one shape."""
    call = eqn.params["call_jaxpr"].jaxpr
    shapes = {v.aval.shape for v in (*call.invars, *call.outvars) if v.aval.shape}
    return len(shapes) == 1 and len(call.outvars) == 1 and _all_elementwise(call)


def keeps_place(eqn: Any) -> bool:
    """Whether an equation is elementwise, or a function that is."""
    name = eqn.primitive.name
    if name in ("jit", "pjit"):
        return _all_elementwise(eqn.params["jaxpr"].jaxpr)
    return name in ELEMENTWISE or name == "custom_jvp_call" and is_elementwise(eqn)


def _all_elementwise(jaxpr: Any) -> bool:
    return all(map(keeps_place, jaxpr.eqns))


def images_last(value: Any, params: dict[str, Any]) -> Any:
    """Move the operand of a pool; leave it as it is where its axes are unusual."""
    window = params["window_dimensions"]
    fixed = [axis for axis, size in enumerate(window) if size == 1]
    if isinstance(value, Moved) or len(window) < 3 or len(fixed) != 2 or fixed[0] != 0:
        return value
    pixels = [axis for axis, size in enumerate(window) if size > 1]
    order = (fixed[1], *pixels, 0)
    return Moved(stored(value, order), order)


def _elementwise(eqn: Any, args: list[Any]) -> Moved | None:
    how = layout(args)
    if how is None or len(how[0]) != len(eqn.outvars[0].aval.shape):
        return None
    arrays = [stored(a, *how) for a in args]
    return Moved(eqn.primitive.bind(*arrays, **eqn.params), *how)


def layout(args: list[Any]) -> tuple[tuple[int, ...], int] | None:
    """Return order and blocks of the first moved value; of one in blocks if there is any."""
    moved = [a for a in args if isinstance(a, Moved)]
    return max(((a.order, a.blocks) for a in moved), key=lambda a: a[1], default=None)


def convolution(eqn: Any, args: list[Any], in_blocks: bool = False) -> Moved | None:
    """Compute a convolution as a product; in blocks where that is asked for and possible."""
    params, (lhs, rhs) = eqn.params, args
    shapes = [v.aval.shape for v in (*eqn.invars, *eqn.outvars)]
    if params["batch_group_count"] != 1 or any(0 in shape for shape in shapes):
        return None
    if not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
        return None
    (n, c, *pixels), (o, i, *window), (n_out, c_out, *pixels_out) = params["dimension_numbers"]
    x = stored(lhs, (c, *pixels, n))
    w = stored(rhs, (*window, i, o))
    spaces = zip(params["padding"], params["lhs_dilation"], strict=True)
    x = _padded(x, [(low, high, space - 1) for (low, high), space in spaces])
    moves = Moves(tuple(params["window_strides"]), tuple(params["rhs_dilation"]))
    dtype, order = eqn.outvars[0].aval.dtype, (c_out, *pixels_out, n_out)
    if in_blocks and _fits_blocks(x, w, moves, params["feature_group_count"]):
        return Moved(convolve_blocks(x, w).astype(dtype), order, 2)
    y = convolve(x, w, moves, params["feature_group_count"])
    return Moved(y.astype(dtype), order)


def _fits_blocks(x: Any, w: Any, moves: Moves, groups: int) -> bool:
    """Whether results fill whole blocks, with stride and dilation 1."""
    steps = {*moves.strides, *moves.dilation}
    sizes = zip(x.shape[1:-1], w.shape[:-2], strict=True)
    return steps == {1} and groups == 1 and all((n - k) % 2 for n, k in sizes)


def _pool(eqn: Any, args: list[Any]) -> Moved | None:
    (value, *_), params = args, eqn.params
    if not isinstance(value, Moved):
        return None
    names = ("window_dimensions", "window_strides", "window_dilation", "padding")
    sizes = [[params[name][axis] for axis in value.order] for name in names]
    window, strides, dilation, padding = sizes
    outside = [(window[k], strides[k], dilation[k], tuple(padding[k])) for k in (0, -1)]
    fixed = all(axis == (1, 1, 1, (0, 0)) for axis in outside)
    if not fixed or math.prod(window) > MAX_WINDOW or set(params["base_dilation"]) != {1}:
        return None
    sums = eqn.primitive.name == "reduce_window_sum"
    if value.blocks == 2:
        if not sums and is_block_pool(eqn):
            return Moved(largest_of_blocks(value.array), value.order)
        value = unblocked(value)
    fill = 0.0 if sums else -math.inf
    x = _padded(value.array, [(*pair, 0) for pair in padding[1:-1]], fill)
    moves = Moves(tuple(strides[1:-1]), tuple(dilation[1:-1]))
    pool = total if sums else largest
    return Moved(pool(x, tuple(window[1:-1]), moves), value.order)


def is_block_pool(eqn: Any) -> bool:
    """Whether this is a max pool of 2 x 2 with stride 2 and no padding."""
    params = eqn.params
    windows = params["window_dimensions"], params["window_strides"]
    sizes = [size for size in windows[0] if size != 1]
    return (
        eqn.primitive.name == "reduce_window_max"
        and tuple(windows[0]) == tuple(windows[1])
        and sizes == [2] * (len(windows[0]) - 2)
        and not any(any(pair) for pair in params["padding"])
        and {*params["window_dilation"], *params["base_dilation"]} == {1}
    )


def _padded(x: Any, around: list[tuple[int, int, int]], fill: float = 0.0) -> Any:
    if not any(any(axis) for axis in around):
        return x
    return lax.pad(x, jnp.array(fill, x.dtype), [(0, 0, 0), *around, (0, 0, 0)])


def _transpose(eqn: Any, args: list[Any]) -> Moved:
    (value,), perm = args, tuple(eqn.params["permutation"])
    if not isinstance(value, Moved):
        value = Moved(value, tuple(range(len(perm))))
    order = tuple(perm.index(axis) for axis in value.order)
    return Moved(value.array, order, value.blocks)


def _reduce(eqn: Any, args: list[Any]) -> Any:
    (value,), axes = args, eqn.params["axes"]
    stored = tuple(k for k, axis in enumerate(value.order) if axis in axes)
    out = eqn.primitive.bind(value.array, **{**eqn.params, "axes": stored})
    left = [axis for axis in value.order if axis not in axes]
    order = tuple(sorted(left).index(axis) for axis in left)
    return Moved(out, order) if len(order) > 1 else out


def _by_axis(*names: str) -> Rule:
    """Make a rule for equations with parameters that have an entry for every axis."""

    def rule(eqn: Any, args: list[Any]) -> Moved | None:
        value, *others = args
        if not isinstance(value, Moved):
            return None
        params = dict(eqn.params)
        for name in names:
            if params[name] is not None:
                params[name] = tuple(params[name][axis] for axis in value.order)
        out = eqn.primitive.bind(value.array, *map(plain, others), **params)
        return Moved(out, value.order)

    return rule


def _concatenate(eqn: Any, args: list[Any]) -> Moved:
    order = next(a.order for a in args if isinstance(a, Moved))
    arrays = [stored(a, order) for a in args]
    return Moved(lax.concatenate(arrays, order.index(eqn.params["dimension"])), order)


def _reverse(eqn: Any, args: list[Any]) -> Moved:
    (value,) = args
    axes = [value.order.index(axis) for axis in eqn.params["dimensions"]]
    return Moved(lax.rev(value.array, axes), value.order)


def _reshape(eqn: Any, args: list[Any]) -> Moved | None:
    """Split one axis into several, as group norms do, or join several."""
    (value, *_), new = args, tuple(eqn.params["new_sizes"])
    old = eqn.invars[0].aval.shape
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    before, after = len(old) - first - last, len(new) - first - last  # how many axes change
    if eqn.params.get("dimensions") is not None or min(before, after) != 1:
        return None
    places = [value.order.index(first + k) for k in range(before)]
    if places != list(range(places[0], places[0] + before)):
        return None  # not adjacent in the array
    shift = after - before
    at, sizes = places[0], list(value.array.shape)
    sizes[at : at + before] = new[first : first + after]
    order = [axis + shift if axis >= first + before else axis for axis in value.order]
    order[at : at + before] = range(first, first + after)
    return Moved(value.array.reshape(sizes), tuple(order))


RULES: dict[str, Rule] = {
    "conv_general_dilated": convolution,
    "reduce_window_max": _pool,
    "reduce_window_sum": _pool,
    "transpose": _transpose,
    "reduce_sum": _reduce,
    "reduce_max": _reduce,
    "reduce_min": _reduce,
    "pad": _by_axis("padding_config"),
    "slice": _by_axis("start_indices", "limit_indices", "strides"),
    "concatenate": _concatenate,
    "rev": _reverse,
    "reshape": _reshape,
}

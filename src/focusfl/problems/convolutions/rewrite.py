"""Evaluate a jax function with convolutions and pools rewritten, equation by equation.

The result of a convolution stays in the order of axes in which it was computed, images last,
as a `Moved`, until an equation needs the original order. Elementwise equations, sums, pads
and concatenations do not, so that nothing is transposed between two convolutions. Functions
inside (jit, scan, cond, while, checkpoint, custom derivatives) are rewritten too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.extend import core

from focusfl.problems.convolutions import rules
from focusfl.problems.convolutions.rules import Moved, plain, stored

INLINED = ("jit", "pjit", "closed_call", "core_call", "custom_lin")
BLOCKS = False  # whether to use blocks on every device, not on a GPU alone
REWRITTEN = ("conv_general_dilated", "reduce_window_max")


@dataclass(frozen=True)
class Fast:
    """A function of trees of arrays, whose convolutions and pools are rewritten in every call."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **more: Any) -> Any:
        traced = jax.make_jaxpr(self.function, return_shape=True)
        closed, shape = traced(*args, **more)
        if not _contains(closed.jaxpr):
            return self.function(*args, **more)
        outs = evaluate(closed.jaxpr, closed.consts, jax.tree.leaves((args, more)))
        return jax.tree.unflatten(jax.tree.structure(shape), map(plain, outs))


def _contains(jaxpr: Any) -> bool:
    return any(
        eqn.primitive.name in REWRITTEN or any(map(_contains, _inner(eqn.params)))
        for eqn in jaxpr.eqns
    )


def _inner(params: dict[str, Any]) -> list[Any]:
    """List the functions among the parameters of an equation."""
    functions = []
    for value in params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, core.ClosedJaxpr):
                functions.append(part.jaxpr)
            elif isinstance(part, core.Jaxpr):
                functions.append(part)
    return functions


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr; some of the results may be `Moved`."""
    known: dict[Any, Any] = {}

    def read(var: Any) -> Any:
        return var.val if isinstance(var, core.Literal) else known[var]

    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))
    pooled = _pooled(jaxpr) if jax.default_backend() == "gpu" or BLOCKS else set()
    for eqn in jaxpr.eqns:
        args = [read(var) for var in eqn.invars]
        outs = _equation(eqn, args, in_blocks=eqn.outvars[0] in pooled)
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _pooled(jaxpr: Any) -> set[Any]:
    """Find the results of convolutions that go into max pools of 2 x 2 only.

    What stands between is elementwise.
    """
    users: dict[Any, list[Any]] = {}
    for eqn in jaxpr.eqns:
        for var in eqn.invars:
            if not isinstance(var, core.Literal):
                users.setdefault(var, []).append(eqn)

    def ends(var: Any) -> bool:
        equations = users.get(var, [])
        return bool(equations) and var not in jaxpr.outvars and all(map(goes_on, equations))

    def goes_on(eqn: Any) -> bool:
        if eqn.primitive.name == "reduce_window_max":
            return rules.is_block_pool(eqn)
        same = eqn.primitive.name == "transpose" or rules.keeps_place(eqn)
        return same and all(map(ends, eqn.outvars))

    convolutions = [e for e in jaxpr.eqns if e.primitive.name == REWRITTEN[0]]
    return {eqn.outvars[0] for eqn in convolutions if ends(eqn.outvars[0])}


def _equation(eqn: Any, args: list[Any], in_blocks: bool = False) -> list[Any]:
    name = eqn.primitive.name
    if in_blocks and (result := rules.convolution(eqn, args, in_blocks)):
        return [result]
    if name in INLINED:
        closed = eqn.params.get("jaxpr") or eqn.params["call_jaxpr"]
        return evaluate(closed.jaxpr, closed.consts, args)
    if name in rules.ALWAYS or any(isinstance(a, Moved) for a in args):
        result = rules.apply(eqn, args)
        if result is not None:
            return [result]
        if name == "custom_jvp_call" and rules.is_elementwise(eqn):
            return [_moved_derivative(eqn, args)]
    elif name in REWRITTEN:
        result = rules.apply(eqn, [rules.images_last(args[0], eqn.params), *args[1:]])
        if result is not None:
            return [result]
    return _bound(eqn, [plain(a) for a in args])


def _bound(eqn: Any, args: list[Any]) -> list[Any]:
    """Evaluate an equation as it is, with the functions inside it rewritten."""
    params = eqn.params
    if any(map(_contains, _inner(params))):
        params = {name: _rewritten_all(value) for name, value in params.items()}
    out = eqn.primitive.bind(*args, **eqn.primitive.get_bind_params(params))
    return list(out) if eqn.primitive.multiple_results else [out]


def _rewritten_all(value: Any) -> Any:
    if isinstance(value, core.ClosedJaxpr):
        return _rewritten(value)
    if isinstance(value, core.Jaxpr):
        closed = _rewritten(core.ClosedJaxpr(value, ()))
        return value if closed.consts else closed.jaxpr
    if isinstance(value, tuple | list) and value:
        if isinstance(value[0], core.ClosedJaxpr | core.Jaxpr):
            return type(value)(map(_rewritten_all, value))
    return value


def _rewritten(closed: Any) -> Any:
    """Return the same function of the same arguments, with its convolutions rewritten."""
    if not _contains(closed.jaxpr):
        return closed

    def run(*args):
        return [plain(out) for out in evaluate(closed.jaxpr, closed.consts, args)]

    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals
    ]
    return jax.make_jaxpr(run)(*shapes)


def _moved_derivative(eqn: Any, args: list[Any]) -> Moved:
    """Evaluate an elementwise function with a custom derivative on moved values."""
    how = cast(tuple, rules.layout(args))
    call = eqn.params["call_jaxpr"]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in call.in_avals]

    def as_it_is(*values):
        params = eqn.primitive.get_bind_params(eqn.params)
        (out,) = eqn.primitive.bind(*values, **params)
        return out

    def slope(values, tangents):
        return jax.jvp(as_it_is, values, tangents)

    @jax.custom_jvp
    def moved(*arrays):
        (out,) = evaluate(call.jaxpr, call.consts, _as_moved(arrays, how))
        return stored(out, *how)

    @moved.defjvp
    def derivative(primals, tangents):
        closed = jax.make_jaxpr(slope)(tuple(shapes), tuple(shapes))
        both = _as_moved((*primals, *tangents), how)
        outs = evaluate(closed.jaxpr, closed.consts, both)
        return tuple(stored(out, *how) for out in outs)

    return Moved(moved(*(stored(a, *how) for a in args)), *how)


def _as_moved(arrays: Sequence[Any], how: tuple) -> list[Any]:
    return [Moved(a, *how) if jnp.ndim(a) else a for a in arrays]

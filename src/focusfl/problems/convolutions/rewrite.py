"""Run a jax function with its convolutions and pools rewritten, equation by equation.

A value that came out of a convolution is kept with images last, together with the order
of its axes, until something needs it as it was: what works element by element, sums,
pads or joins does not, so that between two convolutions nothing is moved. Functions
inside (jit, scan, cond, while, checkpoint, custom derivatives) are rewritten too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from focusfl.problems.convolutions import rules
from focusfl.problems.convolutions.moved import Moved, in_order, plain

INLINED = ("jit", "pjit", "closed_call", "core_call", "custom_lin")
FOUND = ("conv_general_dilated", "reduce_window_max")


@dataclass(frozen=True)
class Fast:
    """A function of trees of arrays, with fast convolutions."""

    function: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        closed, shape = jax.make_jaxpr(self.function, return_shape=True)(*args)
        if not _contains(closed.jaxpr):
            return self.function(*args)
        outs = evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), map(plain, outs))


def has_convolutions(function: Callable[..., Any], *args: Any) -> bool:
    """Whether there is anything to rewrite in a function of such arguments."""
    return _contains(jax.make_jaxpr(function)(*args).jaxpr)


def _contains(jaxpr: Any) -> bool:
    return any(
        eqn.primitive.name in FOUND or any(map(_contains, _inner(eqn.params)))
        for eqn in jaxpr.eqns
    )


def _inner(params: dict[str, Any]) -> list[Any]:
    """The functions inside an equation, whatever they are called there."""
    found = []
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, core.ClosedJaxpr):
                found.append(one.jaxpr)
            elif isinstance(one, core.Jaxpr):
                found.append(one)
    return found


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr, some of them `Moved`."""
    known: dict[Any, Any] = {}

    def read(var: Any) -> Any:
        return var.val if isinstance(var, core.Literal) else known[var]

    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        outs = _equation(eqn, [read(var) for var in eqn.invars])
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _equation(eqn: Any, args: list[Any]) -> list[Any]:
    name = eqn.primitive.name
    if name in INLINED:
        closed = eqn.params.get("jaxpr") or eqn.params["call_jaxpr"]
        return evaluate(closed.jaxpr, closed.consts, args)
    if name in rules.ALWAYS or any(isinstance(a, Moved) for a in args):
        found = rules.apply(eqn, args)
        if found is not None:
            return [found]
        if name == "custom_jvp_call" and rules.is_elementwise(eqn):
            return [_moved_derivative(eqn, args)]
    elif name in FOUND:
        found = rules.apply(eqn, [rules.images_last(args[0], eqn.params), *args[1:]])
        if found is not None:
            return [found]
    return _bound(eqn, [plain(a) for a in args])


def _bound(eqn: Any, args: list[Any]) -> list[Any]:
    """Bind an equation as it is, with the functions inside it rewritten."""
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
    """The same function of the same arguments, with fast convolutions."""
    if not _contains(closed.jaxpr):
        return closed

    def run(*args):
        return [plain(out) for out in evaluate(closed.jaxpr, closed.consts, args)]

    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
        for a in closed.in_avals
    ]
    return jax.make_jaxpr(run)(*shapes)


def _moved_derivative(eqn: Any, args: list[Any]) -> Moved:
    """A custom derivative of what works element by element, where values are moved."""
    order = next(a.order for a in args if isinstance(a, Moved))
    stored = [in_order(a, order) for a in args]
    call = eqn.params["call_jaxpr"]

    def logical(*arrays):
        (out,) = eqn.primitive.bind(
            *arrays, **eqn.primitive.get_bind_params(eqn.params)
        )
        return out

    def through(function, *arrays):
        """Call a function of arrays as they were, with arrays as they are stored."""
        closed = jax.make_jaxpr(
            lambda *inside: jax.tree.map(
                lambda out: in_order(out, order),
                function(*(plain(_as_moved(a, order)) for a in inside)),
            )
        )(*arrays)
        return [plain(out) for out in evaluate(closed.jaxpr, closed.consts, arrays)]

    @jax.custom_jvp
    def moved(*arrays):
        (out,) = evaluate(call.jaxpr, call.consts, arrays)
        return plain(out)

    @moved.defjvp
    def derivative(primals, tangents):
        count = len(primals)

        def both(*arrays):
            return jax.jvp(logical, arrays[:count], arrays[count:])

        return tuple(through(both, *primals, *tangents))

    return Moved(moved(*stored), order)


def _as_moved(a: Any, order: tuple[int, ...]) -> Any:
    return Moved(a, order) if jnp.ndim(a) == len(order) else a

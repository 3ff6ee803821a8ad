"""The type checks of the tests: what `--jaxtyping-packages` puts around functions."""

from functools import partial, wraps
from types import FunctionType

import jaxtyping

with_shapes = jaxtyping.jaxtyped


def checked(function=None, *, typechecker):
    """Check the types of every call, as `jaxtyping.jaxtyped` does, and find the same.

    That one binds all arguments to the signature, for the shapes among them; where none
    are stated, the type checker alone takes a fraction of the time. Where nothing is
    stated at all, as of most functions within functions, which are defined again with
    every call, there is nothing to check."""
    if function is None:
        return partial(checked, typechecker=typechecker)
    if isinstance(function, FunctionType) and not function.__annotations__:
        return function
    if not isinstance(function, FunctionType) or states_shapes(function):
        return with_shapes(function, typechecker=typechecker)
    strict = typechecker(function)
    if strict is function:  # anything will do
        return function

    @wraps(function)
    def call(*args, **kwargs):
        off = jaxtyping.config.jaxtyping_disable
        return (function if off else strict)(*args, **kwargs)

    return call


def states_shapes(function) -> bool:
    """Whether an annotation has a shape in it, or is text that may hold one."""
    stated = function.__annotations__.values()
    return any(isinstance(one, str) or "jaxtyping" in repr(one) for one in stated)

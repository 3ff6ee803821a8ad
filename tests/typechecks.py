"""The type checks of the tests: what `--jaxtyping-packages` puts around functions."""

from contextlib import contextmanager
from functools import partial, update_wrapper
from types import FunctionType
from unittest import mock
from weakref import WeakKeyDictionary

import jaxtyping

with_shapes = jaxtyping.jaxtyped
# Functions whose checks have been written: their code with checks, and without.
WRITTEN = WeakKeyDictionary()


def checked(function=None, *, typechecker):
    """Check the types of every call, as `jaxtyping.jaxtyped` does, and find the same.

    That one binds all arguments to the signature, for the shapes among them; where none
    are stated, the type checker alone takes a fraction of the time. Its checks are
    written when a function is first called, and from then on are all that is between
    the caller and the function. Where nothing is stated at all, as of most functions
    within functions, which are defined again with every call, there is nothing to
    check."""
    if function is None:
        return partial(checked, typechecker=typechecker)
    if isinstance(function, FunctionType) and not function.__annotations__:
        return function
    if not isinstance(function, FunctionType) or states_shapes(function):
        return with_shapes(function, typechecker=typechecker)
    around = FunctionType(first.__code__, function.__globals__, function.__name__)
    begin = partial(check_from_now_on, around, function, typechecker)
    around.__kwdefaults__ = {
        "__first": begin, "__beartype_func": function,
        **(function.__kwdefaults__ or {}),
    }  # fmt: skip
    around.__defaults__ = function.__defaults__
    return update_wrapper(around, function)


def states_shapes(function) -> bool:
    """Whether an annotation has a shape in it, or is text that may hold one."""
    stated = function.__annotations__.values()
    return any(isinstance(one, str) or "jaxtyping" in repr(one) for one in stated)


@contextmanager
def unchecked():
    """Check nothing: a user meets our own messages."""
    if jaxtyping.config.jaxtyping_disable:
        yield
        return
    with mock.patch.object(jaxtyping.config, "jaxtyping_disable", True):
        for around, (_, bare) in list(WRITTEN.items()):
            around.__code__ = bare
        try:
            yield
        finally:
            for around, (checks, _) in list(WRITTEN.items()):
                around.__code__ = checks


def first(*args, __first, **kwargs):
    return __first(args, kwargs)


def plain(*args, __beartype_func, **kwargs):
    return __beartype_func(*args, **kwargs)


def check_from_now_on(around, function, typechecker, args, kwargs):
    """Give the function around another the code that checks its calls."""
    if jaxtyping.config.jaxtyping_disable:
        return function(*args, **kwargs)
    strict, bare = typechecker(function), function.__code__
    if bare.co_freevars:  # which the one around has not
        bare = plain.__code__
    # Each code has its own defaults by name: other threads may be calling.
    around.__kwdefaults__ |= strict.__kwdefaults__ or {}
    checks = bare if strict is function else strict.__code__  # anything will do
    WRITTEN[around] = checks, bare
    around.__code__ = checks
    return around(*args, **kwargs)

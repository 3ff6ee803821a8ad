"""The type checks of the tests: what `--jaxtyping-packages` puts around functions."""

from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial, update_wrapper, wraps
from types import FunctionType
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import jaxtyping

jaxtyped = jaxtyping.jaxtyped  # conftest.py puts `checked` in its place
# Functions whose checks have been written: their code with checks, and without.
WRITTEN = WeakKeyDictionary()
# What was written for a code: what its function states, the checks, and their defaults.
ALIKE = {}


def checked(function=None, *, typechecker):
    """Check the types of every call, as `jaxtyping.jaxtyped` does, and find the same.

    That one binds all arguments to the signature, and checks those of a function that
    states what it returns twice. Checks are written when a function is first called,
    and where it states no shapes are from then on all that is between the caller and
    the function. Where nothing is stated at all, as of most functions within functions,
    which are defined again with every call, there is nothing to check."""
    if function is None:
        return partial(checked, typechecker=typechecker)
    if isinstance(function, type):
        if is_dataclass(function) and "__init__" in vars(function):
            function.__init__ = checked(function.__init__, typechecker=typechecker)
        return function
    if not function.__annotations__:
        return function
    around = FunctionType(first.__code__, function.__globals__, function.__name__)
    begin = partial(check_from_now_on, around, function, typechecker)
    around.__kwdefaults__ = {
        "__first": begin, "__beartype_func": function,
        **(function.__kwdefaults__ or {}),
    }  # fmt: skip
    around.__defaults__ = function.__defaults__
    update_wrapper(around, function)
    return in_a_scope(around) if states_shapes(function) else around


def in_a_scope(function):
    """Have sizes that a function states by name mean the same in one call of it."""

    @wraps(function)
    def call(*args, **kwargs):
        with jaxtyped("context"):
            return function(*args, **kwargs)

    return call


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
    """Give the function around another the code that checks its calls, or the one
    without checks while there are none."""
    bare = function.__code__
    if bare.co_freevars:  # which the one around has not
        bare = plain.__code__
    if jaxtyping.config.jaxtyping_disable:
        WRITTEN[around] = first.__code__, bare
        around.__code__ = bare
    else:
        code, names = checks_of(function, typechecker)
        # Each code has its own defaults by name: other threads may be calling.
        around.__kwdefaults__ |= {**names, "__beartype_func": function}
        WRITTEN[around] = code or bare, bare
        around.__code__ = code or bare
    return around(*args, **kwargs)


def checks_of(function, typechecker):
    """The code that checks a function's calls, None where anything will do, and the
    defaults it needs; those of a function within another are written once, not with
    every call of the other."""
    stated = function.__module__, function.__annotations__
    before = ALIKE.get(function.__code__)
    if before is None or before[0] != stated:
        read = with_text_read(function)
        strict, written = typechecker(read), (None, {})
        if strict is not read:
            written = strict.__code__, strict.__kwdefaults__
        before = ALIKE[function.__code__] = stated, *written
    return before[1:]


def with_text_read(function):
    """A copy of a function whose annotations are what their text names, or anything
    where that is only there for mypy."""

    def read(text):
        try:
            return eval(text, function.__globals__)
        except NameError:
            return Any

    stated = function.__annotations__
    if not any(isinstance(one, str) for one in stated.values()):
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__,
        function.__defaults__, function.__closure__,
    )  # fmt: skip
    update_wrapper(copy, function, updated=())
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = {
        name: read(one) if isinstance(one, str) else one for name, one in stated.items()
    }
    del copy.__wrapped__  # it is none
    return copy

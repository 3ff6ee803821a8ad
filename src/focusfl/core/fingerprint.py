"""A name for what a run follows from: values, arrays and code, down to the bytes.

Equal things have equal fingerprints in every process; a changed number, field or line
of code gives another one. Code is that of a value's class and of the functions it
holds, as it is now: also if it was replaced since it was imported.
"""

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

LENGTH = 16  # hexadecimal digits
# What numbers, steps that are chosen and verdicts depend on, beside the classes that a
# run names.
ROOMS = (
    "algorithms",
    "compression",
    "core",
    "data",
    "participation",
    "privacy",
    "problems",
    "simulation",
    "studies",
    "theory",
)


def fingerprint(*values: Any) -> str:
    """Name these values by their content."""
    found = hashlib.sha256()
    for value in values:
        _add(found.update, value)
    return found.hexdigest()[:LENGTH]


def stable_repr(value: Any) -> str:
    """Write a value as the next process will write it too: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@cache
def package() -> str:
    """Name the code of this package that numbers depend on, by its files."""
    top = Path(__file__).parents[1]
    files = [path for room in ROOMS for path in sorted((top / room).rglob("*.py"))]
    return fingerprint(*(file.read_bytes() for file in files))


def _add(update: Callable[[bytes], None], value: Any) -> None:
    add = partial(_add, update)
    if isinstance(value, bytes):
        update(b"%d:" % len(value) + value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        add(type(value))
        for field in dataclasses.fields(value):
            update(f".{field.name}=".encode())
            add(getattr(value, field.name))
    elif isinstance(value, Mapping):
        update(b"{%d" % len(value))
        for name, part in value.items():
            update(f"{name!r}:".encode())
            add(part)
    elif isinstance(value, list | tuple):
        update(b"[%d" % len(value))
        for part in value:
            add(part)
    elif isinstance(value, type):
        update(f"{value.__module__}.{value.__qualname__}".encode())
        for function in _methods(value):
            add(function)
    elif isinstance(value, partial):
        add((value.func, value.args, value.keywords))
    elif isinstance(value, MethodType):
        add((value.__self__, value.__func__))
    elif callable(value) and isinstance(inspect.unwrap(value), FunctionType):
        _add_function(update, inspect.unwrap(value))
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        update(f"{array.dtype}{array.shape}".encode())
        update(np.ascontiguousarray(array).tobytes())
    else:
        update(stable_repr(value).encode())


def _methods(kind: type) -> list[FunctionType]:
    """The functions of a class and its bases, builtins apart, by name."""
    found = []
    for base in kind.__mro__:
        if base.__module__ in ("builtins", "abc", "typing"):
            continue
        for _, member in sorted(vars(base).items()):
            for holder in ("fget", "func", "__func__"):  # property and the like
                member = getattr(member, holder, member)
            if isinstance(member, FunctionType):
                found.append(member)
    return found


def _add_function(update: Callable[[bytes], None], function: Any) -> None:
    update(function.__qualname__.encode())
    _add_code(update, function.__code__)
    _add(update, (function.__defaults__, function.__kwdefaults__))
    for cell in function.__closure__ or ():
        try:
            inside = cell.cell_contents
        except ValueError:  # not yet filled
            continue
        if not isinstance(inside, type):  # a class that holds it: super()
            _add(update, inside)


def _add_code(update: Callable[[bytes], None], code: CodeType) -> None:
    update(code.co_code)
    update(repr(code.co_names).encode())
    for const in code.co_consts:
        if isinstance(const, CodeType):
            _add_code(update, const)
        elif isinstance(const, frozenset):
            update(repr(sorted(map(repr, const))).encode())
        else:
            update(repr(const).encode())

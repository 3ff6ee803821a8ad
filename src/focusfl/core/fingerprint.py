"""A name for what numbers follow from: values, arrays, and the source that computes with them.

Equal things have equal names in every process; a changed number, field or line of source
gives another one.
"""

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np

LENGTH = 16  # hexadecimal digits
PACKAGE = Path(__file__).parents[1]
# Rooms that no number of a run depends on.
APART = ("cli", "conformance", "deploy", "flower", "suite", "studies/report", "studies/tracking")


def fingerprint(*values: Any) -> str:
    """Name these values by their content.

    A class or function counts by its name and by the source file that it is written in;
    one without a file, typed into an interpreter, by its name alone.
    """
    digest = hashlib.sha256()
    for value in values:
        _add(digest.update, value)
    return digest.hexdigest()[:LENGTH]


@cache
def source() -> str:
    """Name the source of this package that numbers depend on."""
    names = sorted(file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py"))
    files = [name for name in names if not name.startswith(tuple(f"{room}/" for room in APART))]
    return fingerprint(*((name, (PACKAGE / name).read_bytes()) for name in files))


def stable_repr(value: Any) -> str:
    """Write a value as the next process will write it too: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


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
        for base in value.__mro__:
            if base.__module__ not in ("builtins", "abc", "typing"):
                update(f"{base.__module__}.{base.__qualname__}".encode() + _file_of(base))
    elif isinstance(value, partial):
        add((value.func, value.args, value.keywords))
    elif isinstance(value, MethodType):
        add((value.__self__, value.__func__))
    elif callable(value) and isinstance(inspect.unwrap(value), FunctionType):
        function: Any = inspect.unwrap(value)
        update(function.__qualname__.encode() + _file_of(function))
        add((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                inside = cell.cell_contents
            except ValueError:  # not yet filled
                continue
            if not isinstance(inside, type):  # a class that holds it: super()
                add(inside)
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        update(f"{array.dtype}{array.shape}".encode())
        update(np.ascontiguousarray(array).tobytes())
    else:
        update(stable_repr(value).encode())


def _file_of(code: Any) -> bytes:
    """The hash of the source file of a class or function; nothing where there is none."""
    try:
        file = Path(inspect.getfile(code))
        about = file.stat()
    except (TypeError, OSError):
        return b""
    return _hash(file, about.st_mtime_ns, about.st_size)


@cache
def _hash(file: Path, changed: int, size: int) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest()

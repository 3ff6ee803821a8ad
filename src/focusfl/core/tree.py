"""Arithmetic on trees: nested dicts of arrays, or one array. Any array library.

States, NamedTuples of such trees, are trees too.
"""

import math
from collections.abc import Callable
from typing import Any

Tree = Any  # an array, a dict of trees or a NamedTuple of trees


def map(f: Callable, a: Tree, *rest: Tree) -> Tree:
    """Apply f leaf by leaf."""
    if isinstance(a, dict):
        return {name: map(f, a[name], *(b[name] for b in rest)) for name in a}
    if isinstance(a, tuple):
        return type(a)(*(map(f, *parts) for parts in zip(a, *rest, strict=True)))
    return f(a, *rest)


def size(a: Tree) -> int:
    """Count the numbers in all leaves."""
    counts: list[int] = []
    map(lambda a: counts.append(math.prod(getattr(a, "shape", ()))), a)
    return sum(counts)


def nbytes(a: Tree) -> int:
    """How much memory all leaves take, those of numpy or jax."""
    sizes: list[int] = []
    map(lambda a: sizes.append(a.nbytes if hasattr(a, "nbytes") else 8), a)
    return sum(sizes)


def zeros(a: Tree) -> Tree:
    """0 * a, the one spelling that numpy, jax and torch share."""
    return map(lambda a: 0 * a, a)


def add(a: Tree, b: Tree) -> Tree:
    """a + b"""
    return map(lambda a, b: a + b, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """a - b"""
    return map(lambda a, b: a - b, a, b)


def scale(s: Any, a: Tree) -> Tree:
    """s * a"""
    return map(lambda a: s * a, a)


def axpy(s: Any, a: Tree, b: Tree) -> Tree:
    """s * a + b"""
    return map(lambda a, b: s * a + b, a, b)


def dot(a: Tree, b: Tree) -> Any:
    """The inner product over all leaves, a number in the dtype of the leaves."""
    parts: list[Any] = []
    map(lambda a, b: parts.append((a * b).sum()), a, b)
    return sum(parts)

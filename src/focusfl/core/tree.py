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


def leaves(a: Tree) -> list[Any]:
    """List the leaves in order."""
    all_leaves: list[Any] = []
    map(all_leaves.append, a)
    return all_leaves


def size(a: Tree) -> int:
    """Count the numbers in all leaves."""
    return sum(math.prod(getattr(leaf, "shape", ())) for leaf in leaves(a))


def nbytes(a: Tree) -> int:
    """Count the bytes of all leaves, those of numpy or jax."""
    return sum(getattr(leaf, "nbytes", 8) for leaf in leaves(a))


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
    return sum(leaves(map(lambda a, b: (a * b).sum(), a, b)))

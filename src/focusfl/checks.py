"""Checks of what a user hands in, and the words for what is wrong with it."""

import difflib
from collections.abc import Collection
from numbers import Integral
from typing import Any


def check_count(name: str, value: Any) -> None:
    """Raise unless value is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")


def check_seed(name: str, value: Any) -> None:
    """Raise unless value is a whole number of 32 bits: jax may look at no more."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not 0 <= value < 2**32:
        raise ValueError(
            f"{name} must be a whole number from 0 to 2^32 - 1; got {shown(value)}."
        )


def check_is(what: str, got: Any, want: type) -> None:
    """Raise unless a value is of a kind."""
    if not isinstance(got, want):
        hint = "; call it" if isinstance(got, type) else ""
        raise ValueError(f"{what} must be a {want.__name__}; got {shown(got)}{hint}.")


def check_positive(name: str, value: Any) -> None:
    """Raise unless a constant is a positive number."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite; got {value}.")


def shown(value: Any) -> str:
    """A value in one line, and not a long one."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown(what: str, got: Any, known: Collection[str]) -> str:
    """Say that a name is not known, and which known one is nearest."""
    near = difflib.get_close_matches(str(got), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what}: {got!r}.{hint} Known: {', '.join(sorted(known))}."

"""Checks of what a user hands in, and the words for what is wrong with it."""

import difflib
import inspect
import math
import os
from collections.abc import Collection, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SHOWN = 60  # letters of a value that a message repeats
LARGE = 1e100  # squares of numbers up to it are finite, and products of three of them


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise unless value is a whole number of at least 1, or another least one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {shown(value)}.")
    if int(value) >= 2**63 and least:  # seeds may be as large as they like
        raise ValueError(f"{name} must be below 2^63; got {value:.3g}.")


def check_seed(name: str, value: Any) -> None:
    """Raise unless value is a whole number of 32 bits: jax may look at no more."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not 0 <= value < 2**32:
        raise ValueError(f"{name} must be a whole number from 0 to 2^32 - 1; got {shown(value)}.")


def check_is(what: str, got: Any, want: type) -> None:
    """Raise unless a value is of a kind."""
    if not isinstance(got, want):
        hint = "; call it" if isinstance(got, type) else ""
        raise ValueError(f"{what} must be a {want.__name__}; got {shown(got)}{hint}.")


def check_positive(name: str, value: Any) -> None:
    """Raise unless a constant is a positive number."""
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite; got {shown(value)}.")


def check_weight(name: str, value: Any) -> None:
    """Raise unless a weight is a positive number of which sums and squares are finite."""
    if not is_number(value) or not 1 / LARGE <= value <= LARGE:
        raise ValueError(
            f"{name} must be positive and finite, from {1 / LARGE:g} to {LARGE:g}; got "
            f"{shown(value)}."
        )


def check_not_negative(name: str, value: Any) -> None:
    """Raise unless a constant is a number that may be 0."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0; got {shown(value)}.")


def check_share(name: str, value: Any, whole: bool = True) -> None:
    """Raise unless value lies in [0, 1], or in [0, 1) if it may not be the whole."""
    if not is_number(value) or not (0 <= value < 1 or (whole and value == 1)):
        raise ValueError(f"{name} must lie in [0, 1{']' if whole else ')'}; got {shown(value)}.")


def check_one_of(name: str, value: Any, known: Collection[str]) -> None:
    """Raise unless value is one of some words."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {shown(value)}.")


def check_flag(name: str, value: Any) -> None:
    """Raise unless value is true or false."""
    if type(value).__name__ not in ("bool", "bool_"):  # Python's and numpy's
        raise ValueError(f"{name} must be true or false; got {shown(value)}.")


def check_fits(what: str, count: int, advice: str) -> None:
    """Raise if so many float64 are more than the machine's memory, before it is taken.

    Counts are sums and products of whole numbers: they cannot overflow.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 8 * count > memory:
        raise ValueError(
            f"{what} would take {8 * count / 2**30:,.0f} GiB; this machine has "
            f"{memory / 2**30:.0f}. Use {advice}."
        )


def accepts(function: Any, *arguments: Any) -> bool:
    """Say whether something can be called with these arguments, as far as its signature tells."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a function of C without a signature
        pass
    return True


def is_number(value: Any) -> bool:
    """Whether value is one real number; true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def reals(name: str, value: Any, axes: Sequence[str]) -> "np.ndarray":
    """Make an array of finite float64 with these axes, such as ("client", "row")."""
    import numpy as np

    array = numeric(name, value)
    if array.ndim != len(axes) or not array.size:
        form = ", ".join(f"{axis}s" for axis in axes) + "," * (len(axes) == 1)
        raise ValueError(f"{name} must have shape ({form}), none of them 0; got {array.shape}.")
    array = np.asarray(array, float)
    check_finite(name, array, axes)
    return array


def numeric(name: str, value: Any) -> "np.ndarray":
    """Make an array of real numbers, of true and false among them."""
    import numpy as np

    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged; a tensor with grad
        reason = "rows of differing length" if "inhomog" in str(error) else str(error)
        reason = reason.splitlines()[0].rstrip(".")
        raise ValueError(f"{name} must be one array of numbers; got {reason}.") from None
    # Of kind V are the narrow floats that numpy does not know itself, as bfloat16.
    if array.dtype.kind not in "biuf" and not array.dtype.name.startswith("bfloat"):
        raise ValueError(
            f"{name} must be an array of real numbers; got {shown(value)} of type {array.dtype}."
        )
    return array


def check_finite(name: str, array: "np.ndarray", axes: Sequence[str] = ()) -> None:
    """Raise if an array holds NaN or infinity, and say where the first one is."""
    import numpy as np

    if array.dtype.kind in "biuUS" or np.isfinite(array).all():
        return
    first = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
    names = [*axes, *["column"] * (len(first) - len(axes))]
    where = ", ".join(f"{axis} {i}" for axis, i in zip(names, first, strict=True))
    raise ValueError(f"{name} must be finite; got {array[first]} at {where or 'all'}.")


def shown(value: Any) -> str:
    """Repeat a value in a few words, on one line."""
    if shape := getattr(value, "shape", None):
        return f"an array of shape {tuple(shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def printable(text: str, lines: bool = False) -> str:
    """Text that stays in its place, whoever wrote it: a control character is told by
    its code, as \\x1b, which a terminal would obey and a table would break at.

    Breaks between lines are left alone where it may have several.
    """
    if text.isprintable():
        return text
    breaks = "\n" * lines
    return "".join(
        sign if sign.isprintable() or sign in breaks else ascii(sign)[1:-1] for sign in text
    )


def unknown(what: str, got: Any, known: Collection[str]) -> str:
    """Say that a name is not known, and which known one is nearest."""
    near = difflib.get_close_matches(str(got), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what}: {got!r}.{hint} Known: {', '.join(sorted(known))}."

"""Names of the last release that still work, with a warning that says the new one."""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def renamed_argument(old: str, new: str) -> Callable[[F], F]:
    """Let a function take a keyword by its old name."""

    def changed(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs and new not in kwargs:
                _warn(f"{old}=", f"{new}=")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return changed


def joined_arguments(new: str, old: tuple[str, str], at: int) -> Callable[[F], F]:
    """Let a function take two arguments that are one pair now, which is argument `at`.

    They may come by place or by name.
    """

    def changed(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            given, apart = list(args), list(args[at : at + 2])
            apart += [kwargs.pop(name) for name in old if name in kwargs]
            if len(apart) == 2:
                _warn(", ".join(old), f"{new}=({', '.join(old)})")
                given[at:] = [tuple(apart)]
            return function(*given, **kwargs)

        return called  # type: ignore[return-value]

    return changed


def renamed_names(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose old names stand for new objects."""

    def get(name: str) -> Any:
        if name in names:
            _warn(f"{module}.{name}", names[name].__name__)
            return names[name]
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


def _warn(old: str, new: str) -> None:
    words = f"{old} is now called {new}; the old name goes with the next release."
    warnings.warn(words, DeprecationWarning, stacklevel=3)

"""Packages that focusfl can use and does not need, and how to get them."""

from importlib import import_module
from typing import Any

WHERE = "in a clone of focusfl"  # it is on no index yet


def install(extra: str) -> str:
    """The command that brings an extra, given `WHERE`."""
    return f"pip install '.[{extra}]'"


def pandas() -> Any:
    """The module pandas; where it is missing, one clear line."""
    try:
        import pandas
    except ImportError:
        raise ValueError(missing("tables need", "pandas", "pandas")) from None
    return pandas


def missing(what: str, package: str, extra: str) -> str:
    """The words for a package that is missing for something, and how to get it."""
    return f"{what} {package}; get it with: {install(extra)} {WHERE}."


def import_package(name: str) -> Any:
    """Import a module of a package that is no extra; where it is missing, one clear line."""
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise ValueError(f"this needs {package}; install it with: pip install {package}") from None

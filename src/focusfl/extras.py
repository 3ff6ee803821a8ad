"""Packages that focusfl can use and does not need, and how to get them."""


def install(extra: str) -> str:
    """The command that brings an extra; from a clone, as focusfl is on no index yet."""
    return f"pip install '.[{extra}]' in a clone of focusfl"


def missing(what: str, package: str, extra: str) -> ValueError:
    """The error that says which package is missing for what, and how to get it."""
    return ValueError(f"{what} {package}; get it with: {install(extra)}")

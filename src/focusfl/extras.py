"""Packages that focusfl can use and does not need, and how to get them."""

WHERE = "in a clone of focusfl"  # it is on no index yet


def install(extra: str) -> str:
    """The command that brings an extra, given `WHERE`."""
    return f"pip install '.[{extra}]'"


def missing(what: str, package: str, extra: str) -> str:
    """The words for a package that is missing for something, and how to get it."""
    return f"{what} {package}; get it with: {install(extra)} {WHERE}."

"""Does an implementation do what its method says? Checked from outside, whatever it is
written in: `check` drives it, judges where it ends, and names the rule it follows."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focusfl.conformance.algorithm import of_algorithm
    from focusfl.conformance.checked import Report, RowReport, check
    from focusfl.conformance.problem import Problem
    from focusfl.conformance.rows import ROWS

__all__ = ["ROWS", "Problem", "Report", "RowReport", "check", "of_algorithm"]

# Imported when first needed: a process that drives another package has numpy alone.
_NAMES = {
    "ROWS": "rows",
    "Problem": "problem",
    "Report": "checked",
    "RowReport": "checked",
    "check": "checked",
    "of_algorithm": "algorithm",
}


def __getattr__(name: str):
    if name in _NAMES:
        return getattr(import_module(f"focusfl.conformance.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'focusfl.conformance' has no attribute {name!r}")

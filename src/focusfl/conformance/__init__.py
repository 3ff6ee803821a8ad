"""Does an implementation do what its method says? Checked from outside, whatever it is
written in: `check` drives it, judges where it ends, and names the rule it follows."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focusfl.conformance.checking import Report, RowReport, check
    from focusfl.conformance.laws import ContractBroken, check_contract
    from focusfl.conformance.problem import ROWS, Problem
    from focusfl.conformance.rules import of_algorithm

__all__ = [
    "ROWS", "ContractBroken", "Problem", "Report", "RowReport", "check", "check_contract",
    "of_algorithm",
]  # fmt: skip

# Imported when first needed: a process that drives another package has numpy alone.
_NAMES = {
    "ROWS": "problem",
    "Problem": "problem",
    "Report": "checking",
    "RowReport": "checking",
    "check": "checking",
    "ContractBroken": "laws",
    "check_contract": "laws",
    "of_algorithm": "rules",
}


def __getattr__(name: str):
    if name in _NAMES:
        return getattr(import_module(f"focusfl.conformance.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'focusfl.conformance' has no attribute {name!r}")

"""Federated optimization that converges exactly, whatever clients show up."""

from importlib import import_module
from typing import TYPE_CHECKING

from focusfl.algorithms import ALGORITHMS
from focusfl.compression import COMPRESSORS
from focusfl.core import Algorithm, Round

if TYPE_CHECKING:
    from focusfl import (
        compression,
        conformance,
        data,
        flower,
        mixing,
        participation,
        privacy,
        problems,
        theory,
    )
    from focusfl.algorithms import *  # noqa: F403
    from focusfl.compression import *  # noqa: F403
    from focusfl.core import schedules
    from focusfl.core.result import Result
    from focusfl.privacy import BudgetWarning
    from focusfl.simulation.api import simulate, sweep
    from focusfl.simulation.divergence import (
        Diverged,
        DivergenceWarning,
        StepWarning,
    )
    from focusfl.simulation.reference import loop
    from focusfl.simulation.rest import RestWarning
    from focusfl.simulation.spec import Checkpoint, Options
    from focusfl.simulation.stop import Stop
    from focusfl.studies.results import load_model, load_results

_PARTS = {
    part.__name__: part
    for registry in (ALGORITHMS, COMPRESSORS)
    for part in registry.registered.values()
}
globals().update(_PARTS)

__version__ = "0.1.0"
__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "BudgetWarning",
    "Checkpoint",
    "DivergenceWarning",
    "Diverged",
    "Options",
    "RestWarning",
    "Result",
    "Round",
    "StepWarning",
    "Stop",
    "compression",
    "conformance",
    "data",
    "flower",
    "load_model",
    "load_results",
    "loop",
    "mixing",
    "participation",
    "privacy",
    "problems",
    "schedules",
    "simulate",
    "sweep",
    "theory",
    *_PARTS,
]

# Imported when first needed: a participant of a deployment has numpy alone, and jax
# takes its time.
_MODULES = {
    name: f"focusfl.{name}"
    for name in (
        "compression", "conformance", "data", "flower", "mixing", "participation",
        "privacy", "problems", "theory",
    )
} | {"schedules": "focusfl.core.schedules"}  # fmt: skip
_NAMES = {
    "BudgetWarning": "privacy.budgets",
    "Checkpoint": "simulation.spec",
    "Options": "simulation.spec",
    "DivergenceWarning": "simulation.divergence",
    "StepWarning": "simulation.divergence",
    "Diverged": "simulation.divergence",
    "RestWarning": "simulation.rest",
    "Result": "core.result",
    "Stop": "simulation.stop",
    "load_model": "studies.results",
    "load_results": "studies.results",
    "loop": "simulation.reference",
    "simulate": "simulation.api",
    "sweep": "simulation.api",
}


def __getattr__(name: str):
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _NAMES:
        globals()[name] = getattr(import_module(f"focusfl.{_NAMES[name]}"), name)
        return globals()[name]
    parts = COMPRESSORS if name in COMPRESSORS.classes() else ALGORITHMS
    return parts.attribute("focusfl", name)


def __dir__() -> list[str]:
    return sorted({*__all__, *ALGORITHMS.classes(), *COMPRESSORS.classes(), "__version__"})

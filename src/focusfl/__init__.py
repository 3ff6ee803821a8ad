"""Federated optimization that converges exactly, whatever clients show up."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focusfl import algorithms as algorithms
    from focusfl import compression as compression
    from focusfl import conformance as conformance
    from focusfl import core as core
    from focusfl import data as data
    from focusfl import flower as flower
    from focusfl import mixing as mixing
    from focusfl import participation as participation
    from focusfl import privacy as privacy
    from focusfl import problems as problems
    from focusfl import theory as theory
    from focusfl.algorithms import *  # noqa: F403
    from focusfl.algorithms import ALGORITHMS as ALGORITHMS
    from focusfl.compression import *  # noqa: F403
    from focusfl.core import Algorithm as Algorithm
    from focusfl.core import Round as Round
    from focusfl.core import schedules as schedules
    from focusfl.core.result import Result as Result
    from focusfl.privacy import BudgetWarning as BudgetWarning
    from focusfl.simulation.api import simulate as simulate
    from focusfl.simulation.api import sweep as sweep
    from focusfl.simulation.callbacks import Stop as Stop
    from focusfl.simulation.divergence import Diverged as Diverged
    from focusfl.simulation.divergence import DivergenceWarning as DivergenceWarning
    from focusfl.simulation.divergence import RestWarning as RestWarning
    from focusfl.simulation.divergence import StepWarning as StepWarning
    from focusfl.simulation.reference import loop as loop
    from focusfl.simulation.spec import Checkpoint as Checkpoint
    from focusfl.simulation.spec import Options as Options
    from focusfl.studies.store import Study as Study

__version__ = "0.1.0"

# What is imported from where when it is first used, so that `import focusfl` imports
# neither NumPy nor jax. Algorithms and compressors are found in their registries.
_MODULES = {
    "ALGORITHMS": "algorithms",
    "Algorithm": "core",
    "BudgetWarning": "privacy.budgets",
    "Checkpoint": "simulation.spec",
    "Diverged": "simulation.divergence",
    "DivergenceWarning": "simulation.divergence",
    "Options": "simulation.spec",
    "RestWarning": "simulation.divergence",
    "Result": "core.result",
    "Round": "core",
    "StepWarning": "simulation.divergence",
    "Stop": "simulation.callbacks",
    "Study": "studies.store",
    "loop": "simulation.reference",
    "simulate": "simulation.api",
    "sweep": "simulation.api",
}
_PACKAGES = {
    name: f"focusfl.{name}"
    for name in (
        "algorithms", "compression", "conformance", "core", "data", "flower", "mixing",
        "participation", "privacy", "problems", "theory",
    )
} | {"schedules": "focusfl.core.schedules"}  # fmt: skip


def __getattr__(name: str):
    if name == "__all__":
        return [name for name in __dir__() if name != "__version__"]
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name in _MODULES:
        globals()[name] = getattr(import_module(f"focusfl.{_MODULES[name]}"), name)
        return globals()[name]
    if name.startswith("_"):  # asked for by tools: not worth an import
        raise AttributeError(f"module 'focusfl' has no attribute {name!r}")
    algorithms, compressors = _registries()
    parts = compressors if name in compressors.classes() else algorithms
    return parts.attribute("focusfl", name)


def __dir__() -> list[str]:
    classes = (name for parts in _registries() for name in parts.classes())
    return sorted({*_MODULES, *_PACKAGES, *classes, "__version__"})


def _registries():
    from focusfl.algorithms import ALGORITHMS
    from focusfl.compression import COMPRESSORS

    return ALGORITHMS, COMPRESSORS

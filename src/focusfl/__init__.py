"""Federated optimization that converges exactly, whatever clients show up."""

from importlib import import_module
from typing import TYPE_CHECKING

from focusfl.algorithms import (
    ALGORITHMS,
    MIFA,
    TAMUNA,
    AmplifiedScaffold,
    AnchoredFocus,
    ClientOpt,
    Coded,
    FedAdagrad,
    FedAdam,
    FedADMM,
    FedAsync,
    FedAU,
    FedAvg,
    FedAvgM,
    FedAWE,
    FedBuff,
    FedDyn,
    FedLT,
    FedNova,
    FedProx,
    FedVARP,
    FedYogi,
    Focus,
    Late,
    LocalSGD,
    ProxSkip,
    Scaffnew,
    Scaffold,
    ServerOpt,
    TFocus,
    TScaffold,
)
from focusfl.codecs import Chain, FixedPoint, Integers, LowRank, RandomK, TopK
from focusfl.core import Algorithm, Round

if TYPE_CHECKING:
    from focusfl import (
        codecs,
        conformance,
        data,
        flower,
        mixing,
        participation,
        privacy,
        problems,
        schedules,
        theory,
    )
    from focusfl.engines.divergence import (
        Diverged,
        DivergenceWarning,
        StepWarning,
    )
    from focusfl.engines.private import BudgetWarning
    from focusfl.engines.reference import loop
    from focusfl.engines.rest import RestWarning
    from focusfl.engines.result import Result, load_result
    from focusfl.engines.simulator.api import simulate, sweep
    from focusfl.engines.stop import Stop
    from focusfl.experiment.results import load_model, load_results

__version__ = "0.1.0"
__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "AmplifiedScaffold",
    "AnchoredFocus",
    "BudgetWarning",
    "Chain",
    "ClientOpt",
    "Coded",
    "DivergenceWarning",
    "Diverged",
    "FedADMM",
    "FedAU",
    "FedAWE",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedAvgM",
    "FedBuff",
    "FedDyn",
    "FedLT",
    "FedNova",
    "FedProx",
    "FedVARP",
    "FedYogi",
    "FixedPoint",
    "Focus",
    "Integers",
    "Late",
    "LocalSGD",
    "LowRank",
    "MIFA",
    "ProxSkip",
    "RandomK",
    "RestWarning",
    "Result",
    "Round",
    "Scaffnew",
    "Scaffold",
    "ServerOpt",
    "StepWarning",
    "Stop",
    "TAMUNA",
    "TFocus",
    "TScaffold",
    "TopK",
    "codecs",
    "conformance",
    "data",
    "flower",
    "load_model",
    "load_result",
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
]

# Imported when first needed: a participant of a deployment has numpy alone, and jax
# takes its time.
_ROOMS = (
    "codecs", "conformance", "data", "flower", "mixing", "participation", "privacy",
    "problems", "schedules", "theory",
)  # fmt: skip
_NAMES = {
    "BudgetWarning": "engines.private",
    "DivergenceWarning": "engines.divergence",
    "StepWarning": "engines.divergence",
    "Diverged": "engines.divergence",
    "RestWarning": "engines.rest",
    "Result": "engines.result",
    "Stop": "engines.stop",
    "load_model": "experiment.results",
    "load_result": "engines.result",
    "load_results": "experiment.results",
    "loop": "engines.reference",
    "simulate": "engines.simulator.api",
    "sweep": "engines.simulator.api",
}


def __getattr__(name: str):
    if name in _ROOMS:
        return import_module(f"focusfl.{name}")
    if name in _NAMES:
        globals()[name] = getattr(import_module(f"focusfl.{_NAMES[name]}"), name)
        return globals()[name]
    raise AttributeError(f"module 'focusfl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})

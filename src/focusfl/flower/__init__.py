"""Flower as the engine of a deployment: apps built from any algorithm.

Needs the extra `flower`; a client needs numpy, safetensors and flwr alone. Names are
imported when first used: the protocol itself knows no Flower.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focusfl.core.work import Work
    from focusfl.flower.app import server_app
    from focusfl.flower.client import client_app
    from focusfl.flower.job import Job
    from focusfl.flower.strategy import AlgorithmStrategy

__all__ = ["AlgorithmStrategy", "Job", "Work", "client_app", "server_app"]

_MODULES = {
    "AlgorithmStrategy": "strategy", "Job": "job", "Work": "client",
    "client_app": "client", "server_app": "app",
}  # fmt: skip


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'focusfl.flower' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)

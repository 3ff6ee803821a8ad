"""Flower as the engine of a deployment: apps built from any algorithm.

Needs the extra `flower`; a client needs numpy and flwr alone.
"""

from focusfl.engines.flower.app import server_app
from focusfl.engines.flower.client import Work, client_app
from focusfl.engines.flower.job import Job
from focusfl.engines.flower.pytorch import from_torch, params
from focusfl.engines.flower.strategy import AlgorithmStrategy

__all__ = [
    "AlgorithmStrategy",
    "Job",
    "Work",
    "client_app",
    "from_torch",
    "params",
    "server_app",
]

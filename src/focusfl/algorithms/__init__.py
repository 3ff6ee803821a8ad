"""Federated algorithms, one file each."""

from focusfl.algorithms.fedavg import FedAvg
from focusfl.algorithms.focus import Focus
from focusfl.core import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    "focus": Focus,
    "fedavg": FedAvg,
}

__all__ = ["ALGORITHMS", "FedAvg", "Focus"]

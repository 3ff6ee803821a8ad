"""The contract of algorithms, and what every other package uses."""

from focusfl.core import tree
from focusfl.core.algorithm import (
    Algorithm,
    Batch,
    C,
    CannotForget,
    Client,
    GradFn,
    L,
    Local,
    Message,
    Round,
    S,
    Server,
    gradient_sum,
)  # fmt: skip
from focusfl.core.registry import ALGORITHMS, COMPRESSORS, PARTICIPATION, PROBLEMS, SCHEDULES
from focusfl.core.tree import Tree

__all__ = [
    "ALGORITHMS", "COMPRESSORS", "PARTICIPATION", "PROBLEMS", "SCHEDULES", "Algorithm", "Batch",
    "C", "CannotForget", "Client", "GradFn", "L", "Local", "Message", "Round", "S",
    "Server", "Tree", "gradient_sum", "tree",
]  # fmt: skip

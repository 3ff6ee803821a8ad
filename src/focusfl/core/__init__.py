"""The contract of algorithms, and what every other package uses."""

from focusfl.core.algorithm import (
    Algorithm,
    Batch,
    C,
    CannotForget,
    Client,
    Drawn,
    GradFn,
    L,
    Local,
    Message,
    Round,
    S,
    Server,
    gradient_sum,
    has_after_update,
)

__all__ = [
    "Algorithm", "Batch", "C", "CannotForget", "Client", "Drawn", "GradFn", "L",
    "Local", "Message", "Round", "S", "Server", "gradient_sum", "has_after_update",
]  # fmt: skip

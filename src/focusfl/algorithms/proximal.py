"""The spring of methods that draw a client's model towards a point while it trains.

Their papers have a constant for how strong it is. Where a user gives none it is
1 / (local_steps lr): a prox of the same step as that of all local steps together, so
that one step size is left to tune.
"""

import math
from typing import Any

from focusfl.core import Round


def strength(constant: float | None, rd: Round) -> Any:
    """Factor of the distance in every local gradient."""
    return 1 / (rd.local_steps * rd.lr) if constant is None else constant


def stationary_below(constant: float | None, L: float, local_steps: int) -> float:
    """The step below which local steps that lead back to where they began were none.

    The spring adds its strength to L, and gradient descent goes down with every step
    below 2 / (L + strength): it cannot come back. Where the strength follows lr that is
    lr < (2 - 1 / local_steps) / L. One step alone comes back only if it did not move.
    """
    if local_steps == 1:
        return math.inf
    return (2 - 1 / local_steps) / L if constant is None else 2 / (L + constant)

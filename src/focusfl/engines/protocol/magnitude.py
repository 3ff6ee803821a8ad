"""How large things are."""

import math
from typing import Any

import numpy as np

from focusfl.engines.protocol.format import leaves


def norm(a: Any) -> float:
    """The Euclidean norm of a tree, of numbers whose squares are infinite too."""
    parts = [np.asarray(leaf, float) for leaf in leaves(a)]
    largest = max((float(np.max(np.abs(p), initial=0)) for p in parts), default=0.0)
    if not largest or math.isinf(largest):
        return largest
    squares = sum(float(np.sum(np.square(part / largest))) for part in parts)
    return largest * math.sqrt(squares)

"""The operators of PyTorch that can be translated: a dict from names in ATen to jax functions.

Functions take the arguments of ATen but for those that only say what type and device a result
has. A name with an overload, such as max.other, takes precedence over one without.
"""

import operator
from collections.abc import Callable

from focusfl.problems.torch.operators.arrays import ARRAYS
from focusfl.problems.torch.operators.elementwise import ELEMENTWISE
from focusfl.problems.torch.operators.layers import LAYERS
from focusfl.problems.torch.operators.random import RANDOM

# "getitem" picks one of several results.
OPERATORS: dict[str, Callable] = {**ELEMENTWISE, **ARRAYS, **LAYERS, "getitem": operator.getitem}


def entry_of(name: str) -> str | None:
    """Return the name in OPERATORS or RANDOM for one such as add.Tensor; None if there is none."""
    for entry in (name, name.partition(".")[0]):
        if entry in OPERATORS or entry in RANDOM:
            return entry
    return None

"""The operators of PyTorch that can be translated: {name in ATen: function of jax}.

Functions take the arguments of ATen, without those that say only of what type and where a
result is. A name with an overload, such as max.other, comes before one without.
"""

from collections.abc import Callable

from focusfl.problems.torch.operators.arrays import ARRAYS
from focusfl.problems.torch.operators.elementwise import ELEMENTWISE
from focusfl.problems.torch.operators.layers import LAYERS
from focusfl.problems.torch.operators.pooling import POOLING
from focusfl.problems.torch.operators.random import RANDOM

OPERATORS: dict[str, Callable] = {**ELEMENTWISE, **ARRAYS, **LAYERS, **POOLING}
GETITEM = "getitem"  # one of several results


def entry_of(name: str) -> str | None:
    """Give the entry for a name such as add.Tensor; None if there is none."""
    for entry in (name, name.partition(".")[0]):
        if entry in OPERATORS or entry in RANDOM or entry == GETITEM:
            return entry
    return None

"""The operators of PyTorch that are known: {name in ATen: function of jax}.

Functions take the arguments of ATen, without those that say only of what type and where
a result is. A name with an overload, such as max.other, comes before one without.
"""

from collections.abc import Callable

from focusfl.problems.torch.arrays import ARRAYS
from focusfl.problems.torch.drawn import DRAWN
from focusfl.problems.torch.elementwise import ELEMENTWISE
from focusfl.problems.torch.layers import LAYERS
from focusfl.problems.torch.windows import WINDOWS

OPERATORS: dict[str, Callable] = {**ELEMENTWISE, **ARRAYS, **LAYERS, **WINDOWS}
GETITEM = "getitem"  # one of several results


def known(name: str) -> str | None:
    """The entry for a name such as add.Tensor; None if there is none."""
    for entry in (name, name.partition(".")[0]):
        if entry in OPERATORS or entry in DRAWN or entry == GETITEM:
            return entry
    return None

"""`Chain`: some of the numbers, in fewer bits each."""

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from focusfl.compression.compressor import Compressor
from focusfl.compression.rounding import Quantize, Rounding
from focusfl.compression.sparse import Sparse, TopK
from focusfl.core.registry import COMPRESSORS
from focusfl.core.validation import shown


@COMPRESSORS.register("chain")
@dataclass(frozen=True)
class Chain(Compressor):
    """Choose some numbers of each leaf, then send these in fewer bits.

    Chain(TopK(0.1), Quantize(4)) sends a tenth of the numbers, in four bits each. The order is
    fixed: what the first compressor leaves out must not affect the second.

    Raises:
        ValueError: If `first` or `then` is of another kind, or `then` has blocks.
    """

    first: Compressor = TopK()  # TopK or RandomK
    then: Compressor = Quantize()  # Quantize or FixedPoint

    def __post_init__(self):
        if not isinstance(self.first, Sparse):
            raise ValueError(f"first must be a TopK or a RandomK; got {shown(self.first)}.")
        if not isinstance(self.then, Rounding):
            raise ValueError(f"then must be a Quantize or a FixedPoint; got {shown(self.then)}.")
        if getattr(self.then, "block", None) is not None:
            raise ValueError(
                "then must have one scale for all that is chosen, and so no block; got "
                f"{self.then!r}."
            )

    @property
    def sends_all(self):
        return self.first.sends_all

    @property
    def vanishes(self):
        return self.then.vanishes

    def check(self, shape):
        self.first.check(shape)

    def approximate(self, a, index, salt):
        chosen = self.first.approximate(a, index, salt)
        return self.then.approximate(chosen, index, salt + 1)

    def encode(self, a, index, salt):
        first, then = self._both
        chosen = first.chosen(a.reshape(-1), index, salt)
        coarse = first.approximate(a, index, salt)
        scale, whole = then.rounded(coarse, index, salt + 1)
        return first.write_places(chosen) + then.write(scale, whole.reshape(-1)[chosen])

    def decode(self, blob, shape, dtype, index, salt):
        first, then = self._both
        out = np.zeros(math.prod(shape), dtype)
        chosen, values = first.read_places(blob, out, index, salt)
        out[chosen] = then.read(values, int(chosen.sum()), dtype)
        return out.reshape(shape)

    @property
    def _both(self) -> tuple[Sparse, Rounding]:
        return cast(Any, (self.first, self.then))

    def load(self, shape, plain):
        return self.then.load(shape, self.first.load(shape, plain))

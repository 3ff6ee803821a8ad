"""Some of the numbers, in fewer bits each."""

from dataclasses import dataclass

from focusfl.checks import shown
from focusfl.codecs.codec import Codec
from focusfl.codecs.fixed_point import FixedPoint
from focusfl.codecs.integers import Integers
from focusfl.codecs.sparse import Sparse
from focusfl.codecs.top_k import TopK


@dataclass(frozen=True)
class Chain(Codec):
    """Choose numbers, then round them: Chain(TopK(0.1), Integers(4)) sends a tenth of
    them, in four bits each.

    In no other order: what one leaves unsent must be no part of what the next does.
    """

    first: Codec = TopK()  # TopK or RandomK
    then: Codec = Integers()  # Integers or FixedPoint

    def __post_init__(self):
        if not isinstance(self.first, Sparse):
            raise ValueError(
                f"first must be a TopK or a RandomK; got {shown(self.first)}."
            )
        if not isinstance(self.then, Integers | FixedPoint):
            raise ValueError(
                f"then must be an Integers or a FixedPoint; got {shown(self.then)}."
            )

    @property
    def vanishes(self):
        return self.then.vanishes

    def check(self, shape):
        self.first.check(shape)

    def approximate(self, a, index, salt):
        chosen = self.first.approximate(a, index, salt)
        return self.then.approximate(chosen, index, salt + 1)

    def load(self, shape, plain):
        return self.then.load(shape, self.first.load(shape, plain))

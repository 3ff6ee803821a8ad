"""`RandomK`: some numbers, drawn anew in every round."""

from dataclasses import dataclass

from focusfl.compression.compressor import Load
from focusfl.compression.dither import uniform
from focusfl.compression.sparse import Sparse, largest
from focusfl.core.registry import COMPRESSORS


@COMPRESSORS.register("random_k")
@dataclass(frozen=True)
class RandomK(Sparse):
    """Send k numbers of each leaf, drawn anew in every round.

    All clients send the same ones, so that places need not be sent.
    """

    def chosen(self, flat, index, salt):
        count = flat.shape[0]
        return largest(uniform(flat, count, index, salt), self.kept(count))

    def load(self, shape, plain):
        return Load(self.kept(plain.numbers), plain.width, plain.beside)

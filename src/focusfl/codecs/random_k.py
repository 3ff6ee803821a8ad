"""Some numbers, drawn anew in every round."""

from dataclasses import dataclass

from focusfl.codecs.codec import Load
from focusfl.codecs.dither import uniform
from focusfl.codecs.sparse import Sparse, largest


@dataclass(frozen=True)
class RandomK(Sparse):
    """Send k numbers of each leaf, drawn by the round: everybody's are the same ones,
    and their places need not be sent."""

    def approximate(self, a, index, salt):
        flat = a.reshape(-1)
        drawn = uniform(a, flat.shape[0], index, salt)
        return (largest(drawn, self.kept(flat.shape[0])) * flat).reshape(a.shape)

    def load(self, shape, plain):
        return Load(self.kept(plain.numbers), plain.width, plain.beside)

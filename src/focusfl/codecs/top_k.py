"""The largest numbers, and where they are."""

from dataclasses import dataclass

from focusfl.codecs.codec import Load
from focusfl.codecs.sparse import Sparse, largest


@dataclass(frozen=True)
class TopK(Sparse):
    """Send the k largest numbers of each leaf, and their places."""

    def approximate(self, a, index, salt):
        del index, salt
        flat = a.reshape(-1)
        return (largest(abs(flat), self.kept(flat.shape[0])) * flat).reshape(a.shape)

    def load(self, shape, plain):
        count = self.kept(plain.numbers)
        # A place each, or a bit for every number, whichever is less.
        places = min(count * (plain.numbers - 1).bit_length(), plain.numbers)
        return Load(count, plain.width, plain.beside + places)

"""`TopK`: the largest numbers, and their places."""

from dataclasses import dataclass

import numpy as np

from focusfl.compression.compressor import Load
from focusfl.compression.packing import bytes_of, pack, unpack
from focusfl.compression.sparse import Sparse, largest
from focusfl.core.registry import COMPRESSORS


@COMPRESSORS.register("top_k")
@dataclass(frozen=True)
class TopK(Sparse):
    """Send the k numbers of largest absolute value of each leaf, and their places."""

    def chosen(self, flat, index, salt):
        del index, salt
        return largest(abs(flat), self.kept(flat.shape[0]))

    def load(self, shape, plain):
        count = self.kept(plain.numbers)
        return Load(count, plain.width, plain.beside + self._places(plain.numbers))

    def _places(self, size: int) -> int:
        """Count the bits of places: one place for each, or one bit per number if that is less."""
        return min(self.kept(size) * (size - 1).bit_length(), size)

    def write_places(self, chosen):
        size = len(chosen)
        if self._places(size) == size:
            return pack(chosen, 1)
        return pack(np.flatnonzero(chosen), (size - 1).bit_length())

    def read_places(self, blob, like, index, salt):
        size, count = len(like), self.kept(len(like))
        end = bytes_of(self._places(size), 1)
        if self._places(size) == size:
            chosen = unpack(blob[:end], size, 1, 1).astype(bool)
        else:
            places = unpack(blob[:end], count, (size - 1).bit_length(), size - 1)
            if (np.diff(places) <= 0).any():
                raise ValueError("places are not in order")
            chosen = np.zeros(size, bool)
            chosen[places] = True
        if chosen.sum() != count:
            raise ValueError(f"it has {chosen.sum()} numbers, not {count}")
        return chosen, blob[end:]

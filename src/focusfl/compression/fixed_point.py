"""`FixedPoint`: multiples of one step, the same for all clients and rounds."""

from dataclasses import dataclass

from focusfl.compression.compressor import Load
from focusfl.compression.dither import between
from focusfl.compression.rounding import Rounding, check_bits
from focusfl.core.registry import COMPRESSORS


@COMPRESSORS.register("fixed_point")
@dataclass(frozen=True)
class FixedPoint(Rounding):
    """Send the nearest multiple of 2^-fraction, as a whole number of `bits` bits.

    Sums of such numbers are exact in any order, and can be masked. A number that is too large
    is sent as the largest one, and the rest later. Less than half a step is never sent: a run
    is exact to this resolution and no further.

    Raises:
        ValueError: If bits or fraction are out of their ranges.
    """

    bits: int = 32  # from 2 to 53, including the sign
    fraction: int = 24  # bits after the binary point, from 0 to 64

    def __post_init__(self):
        check_bits("bits", self.bits, 2, 53)  # what a float64 holds
        check_bits("fraction", self.fraction, 0, 64)

    @property
    def vanishes(self):
        return False

    def rounded(self, a, index, salt):
        del index, salt
        unit, most = 2.0**-self.fraction, 2 ** (self.bits - 1) - 1
        return unit, between((a / unit + 0.5) // 1, most)

    def read(self, blob, count, dtype):
        return 2.0**-self.fraction * self.whole(blob, count, dtype)

    def load(self, shape, plain):
        return Load(plain.numbers, self.bits, plain.beside)

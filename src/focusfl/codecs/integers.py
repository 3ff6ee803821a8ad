"""Whole numbers of few bits, and one scale per leaf."""

from dataclasses import dataclass

import numpy as np

from focusfl.checks import check_one_of
from focusfl.codecs.checks import check_bits
from focusfl.codecs.codec import Load
from focusfl.codecs.dither import between, uniform
from focusfl.codecs.packing import from_raw, raw
from focusfl.codecs.rounding import Rounding


@dataclass(frozen=True)
class Integers(Rounding):
    """Send every number as a whole one of a few bits, times one scale per leaf.

    The largest becomes 2^(bits - 1) - 1; two bits are -1, 0 and 1. What travels as the
    scale is then the best one for what they were rounded to, in least squares: what is
    left is at a right angle to what was sent, so that no rounding can make it longer
    than what was there.
    """

    bits: int = 8  # from 2 to 8
    rounding: str = "nearest"  # or "stochastic": up as often as it is near

    def __post_init__(self):
        check_bits("bits", self.bits, 2, 8)
        check_one_of("rounding", self.rounding, ("nearest", "stochastic"))

    def rounded(self, a, index, salt):
        most = 2 ** (self.bits - 1) - 1
        unit = abs(a).max() / most
        near = a / (unit + (unit == 0))
        shift = 0.5
        if self.rounding == "stochastic":
            count = a.reshape(-1).shape[0]
            shift = uniform(a, count, index, salt).reshape(a.shape)
        whole = between((near + shift) // 1, most)
        square = (whole * whole).sum()
        return unit * (near * whole).sum() / (square + (square == 0)), whole

    def write(self, scale, whole):
        return raw(scale, whole.dtype) + super().write(scale, whole)

    def read(self, blob, count, dtype):
        size = np.dtype(dtype).itemsize
        return from_raw(blob[:size], dtype)[0] * self.whole(blob[size:], count, dtype)

    def load(self, shape, plain):
        return Load(plain.numbers, self.bits, plain.beside + plain.width)

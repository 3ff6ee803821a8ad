"""Compressors: what is read of what was sent, and the bits that takes."""

from itertools import product

import numpy as np
import pytest
from helpers import same

import focusfl as ff
from focusfl import Chain, FixedPoint, LowRank, Quantize, RandomK, TopK
from focusfl.compression import packing
from focusfl.compression.dither import uniform

COMPRESSORS = [
    Quantize(8),
    Quantize(4, "stochastic"),
    Quantize(2),
    Quantize(2, "stochastic"),
    Quantize(4, block=16),
    Quantize(4, "stochastic", block=33),
    TopK(0.25),
    TopK(3),
    RandomK(0.25),
    LowRank(1),
    LowRank(2, passes=1),
    FixedPoint(16, 10),
    FixedPoint(50, 44),
    Chain(TopK(0.25), Quantize(4)),
    Chain(RandomK(0.25), Quantize(4, "stochastic")),
]
SHAPE = 9, 11
every_codec = pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)


def draws(compressor, a, rounds=200):
    return [compressor.approximate(a, index, 7) for index in range(rounds)]


def heavy(seed, dtype="float64"):
    """Numbers of which a few are large, as those of gradients."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(SHAPE) ** 5).astype(dtype)


@every_codec
def test_what_is_read_is_nearer_than_nothing_at_all(compressor):
    """In every draw, and not only in the mean; and it keeps shape and dtype."""
    for seed, (dtype, rounding) in product(range(10), [("float32", 1e-6), ("float64", 1e-14)]):
        a = heavy(seed, dtype)
        for read in draws(compressor, a, 5):
            assert read.shape == a.shape and read.dtype == a.dtype
            left = np.linalg.norm(a - read) / np.linalg.norm(a)
            assert left <= 1 + rounding
    mean = np.mean([np.linalg.norm(a - read) for read in draws(compressor, a)])
    assert mean < np.linalg.norm(a)


@every_codec
def test_nothing_is_sent_as_nothing(compressor):
    zero = np.zeros(SHAPE)
    assert all(same(read, zero) for read in draws(compressor, zero, 3))


@every_codec
def test_what_is_left_is_sent_in_the_end(compressor):
    """One and the same again and again, with what was left: nothing is left over, or
    with fixed point no more than half a step of it."""
    a = heavy(0)
    left = a
    for index in range(400):
        left = left - compressor.approximate(left, index, 7)
    if compressor.vanishes:
        assert np.linalg.norm(left) < 1e-9 * np.linalg.norm(a)
    else:
        assert np.abs(left).max() <= 2.0**-11


def test_numbers_that_are_none_stay_none():
    """A run that overflows is noticed as it was, and never turned into numbers."""
    for compressor in COMPRESSORS:
        for bad in (np.nan, np.inf):
            a = heavy(0)
            a[3, 4] = bad
            with np.errstate(all="ignore"):
                reads = draws(compressor, a, 40)
                lefts = [a - read for read in reads]
            assert not any(np.isfinite(left).all() for left in lefts), compressor


def test_draws_are_uniform_and_differ_by_round_place_and_leaf():
    like = np.zeros(1)
    found = np.stack([uniform(like, 100, index, 5) for index in range(1000)])
    assert abs(found.mean() - 0.5) < 0.005 and abs(found.var() * 12 - 1) < 0.02
    for a, b in [(found[1:], found[:-1]), (found[:, 1:], found[:, :-1])]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02
    other = uniform(like, 1000, 3, 6)
    assert abs(np.corrcoef(uniform(like, 1000, 3, 5), other)[0, 1]) < 0.15
    assert len(np.unique(found[:, 0])) > 990


@every_codec
def test_a_message_takes_the_bits_that_are_counted(compressor):
    """What a receiver must know: how many values there are, and of how many kinds."""
    a, plain = heavy(1), ff.compression.Load(99, 64)
    load = compressor.load(SHAPE, plain)
    assert load.bits < plain.bits
    for read in draws(compressor, a, 5):
        if isinstance(compressor, LowRank):
            assert np.linalg.matrix_rank(read) <= compressor.rank
            assert load.numbers == compressor.rank * (9 + 11)
        else:
            assert np.count_nonzero(read) <= load.numbers
            kinds = 2**load.width * getattr(compressor, "_blocks", lambda size: 1)(99)
            assert len(np.unique(read[read != 0])) < kinds


def test_bits_are_those_of_the_books():
    plain = ff.compression.Load(1000, 32)
    assert Quantize(4).load((1000,), plain).bits == 4 * 1000 + 32
    assert Quantize(4, block=64).load((1000,), plain).bits == 4 * 1000 + 16 * 32
    assert TopK(10).load((1000,), plain).bits == 10 * (32 + 10)
    assert TopK(0.5).load((1000,), plain).bits == 500 * 32 + 1000  # a bit each
    assert RandomK(10).load((1000,), plain).bits == 10 * 32
    assert FixedPoint(16, 8).load((1000,), plain).bits == 16 * 1000
    assert LowRank(2).load((50, 20), plain).bits == 2 * 70 * 32
    assert Chain(TopK(10), Quantize(4)).load((1000,), plain).bits == 10 * 14 + 32


@every_codec
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bytes_are_read_as_what_was_sent_and_are_as_many_as_counted(compressor, dtype):
    """To the bit: what a site keeps as sent is what its server adds."""
    width = 8 * np.dtype(dtype).itemsize
    bits = compressor.load(SHAPE, ff.compression.Load(99, width)).bits
    for seed, index in [(0, 0), (1, -1), (2, 70_000)]:
        a = heavy(seed, dtype)
        blob = compressor.encode(a, index, 7)
        assert bits <= 8 * len(blob) < bits + 16  # parts end with a byte
        read = compressor.decode(blob, SHAPE, a.dtype, index, 7)
        assert read.dtype == a.dtype
        assert np.array_equal(read, compressor.approximate(a, index, 7))
    zero = compressor.encode(0 * a, 3, 7)
    assert len(zero) == len(blob)
    assert not compressor.decode(zero, SHAPE, a.dtype, 3, 7).any()


def test_a_block_is_sent_as_if_it_were_alone():
    a, whole, compressor = heavy(2).reshape(-1), Quantize(4), Quantize(4, block=16)
    read = compressor.approximate(a, 0, 7)
    for start in range(0, 99, 16):
        own = slice(start, start + 16)
        alone = whole.approximate(a[own], 0, 7)
        np.testing.assert_allclose(read[own], alone, rtol=1e-14)
    errors = [np.linalg.norm(a - c.approximate(a, 0, 7)) for c in (compressor, whole)]
    assert errors[0] < 0.8 * errors[1]
    one = Quantize(4, block=1000).approximate(a, 0, 7)
    np.testing.assert_allclose(one, whole.approximate(a, 0, 7), rtol=1e-14)


def test_without_blocks_it_is_called_as_states_on_disk_call_it():
    assert repr(Quantize(4)) == "Quantize(bits=4, rounding='nearest')"
    assert repr(Quantize(4, block=64)).endswith("rounding='nearest', block=64)")
    assert eval(repr(Quantize(4, block=64))) == Quantize(4, block=64)


def test_the_largest_number_of_fixed_point_fits_its_bits_in_float32():
    """2^31 - 1 is no number of float32."""
    compressor, a = FixedPoint(32, 0), np.array([1e12, -1e20, 3], "float32")
    assert compressor.approximate(a, 0, 0).tolist() == [2**31, -(2**31), 3]
    blob = compressor.encode(a, 0, 0)
    read = compressor.decode(blob, (3,), a.dtype, 0, 0)
    assert len(blob) == 12 and same(read, compressor.approximate(a, 0, 0))


@pytest.mark.parametrize("bits", [1, 3, 8, 9, 17, 32])
def test_packed_numbers_come_back(bits):
    rng = np.random.default_rng(bits)
    for count in (1, 7, 100):
        codes = rng.integers(0, 2**bits, count)
        blob = packing.pack(codes, bits)
        assert len(blob) == -(-count * bits // 8)
        assert same(packing.unpack(blob, count, bits, 2**bits - 1), codes)
        with pytest.raises(ValueError, match="bytes, not"):
            packing.unpack(blob + b"\0", count, bits, 2**bits - 1)


@pytest.mark.parametrize(
    "compressor, blob, words",
    [
        (Quantize(4), bytes(8) + b"\xff" * 49 + b"\xf0", "a number is 15, above 14"),
        (Quantize(4), bytes(8) + b"\x77" * 49 + b"\x71", "behind the last number"),
        (Quantize(4), bytes(9), "it has 1 bytes, not 50"),
        (Quantize(4, block=50), bytes(8 + 50), "it has 42 bytes, not 50"),
        (TopK(3), bytes(27), "places are not in order"),
        (TopK(3), b"\xff" * 27, "a number is 127, above 98|behind the last"),
        (TopK(0.5), bytes(13 + 400), "it has 0 numbers, not 50"),
    ],
)
def test_bytes_that_nobody_has_encoded_are_refused(compressor, blob, words):
    with pytest.raises(ValueError, match=words):
        compressor.decode(blob, SHAPE, np.dtype("float64"), 0, 7)


@pytest.mark.parametrize("size", [1e3, 1e16, 1e100])
def test_what_is_too_large_is_sent_as_the_largest_there_is(size):
    """However large: what is taken away from 1e16 must not round it off."""
    read = FixedPoint(8, 0).approximate(np.array([size, -size, 2.0]), 0, 0)
    assert read.tolist() == [127, -127, 2]

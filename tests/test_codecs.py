"""Codecs: what is read of what was sent, and the bits that takes."""

import numpy as np
import pytest
from helpers import same

import focusfl as ff
from focusfl import Chain, FixedPoint, Integers, LowRank, RandomK, TopK
from focusfl.codecs import packing
from focusfl.codecs.dither import uniform

CODECS = [
    Integers(8),
    Integers(4, "stochastic"),
    Integers(2),
    Integers(2, "stochastic"),
    Integers(4, block=16),
    Integers(4, "stochastic", block=33),
    TopK(0.25),
    TopK(3),
    RandomK(0.25),
    LowRank(1),
    LowRank(2, passes=1),
    FixedPoint(16, 10),
    FixedPoint(50, 44),
    Chain(TopK(0.25), Integers(4)),
    Chain(RandomK(0.25), Integers(4, "stochastic")),
]
SHAPE = 9, 11
every_codec = pytest.mark.parametrize("codec", CODECS, ids=repr)


def draws(codec, a, rounds=200):
    return [codec.approximate(a, index, 7) for index in range(rounds)]


def heavy(seed, dtype="float64"):
    """Numbers of which a few are large, as those of gradients."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(SHAPE) ** 5).astype(dtype)


@every_codec
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_read_is_nearer_than_nothing_at_all(codec, dtype):
    """In every draw, and not only in the mean; and it keeps shape and dtype."""
    rounding = 1e-6 if dtype == "float32" else 1e-14
    for seed in range(20):
        a = heavy(seed, dtype)
        for read in draws(codec, a, 5):
            assert read.shape == a.shape and read.dtype == a.dtype
            left = np.linalg.norm(a - read) / np.linalg.norm(a)
            assert left <= 1 + rounding
    mean = np.mean([np.linalg.norm(a - read) for read in draws(codec, a)])
    assert mean < np.linalg.norm(a)


@every_codec
def test_nothing_is_sent_as_nothing(codec):
    zero = np.zeros(SHAPE)
    assert all(same(read, zero) for read in draws(codec, zero, 3))


@every_codec
def test_what_is_left_is_sent_in_the_end(codec):
    """One and the same again and again, with what was left: nothing is left over, or
    with fixed point no more than half a step of it."""
    a = heavy(0)
    left = a
    for index in range(400):
        left = left - codec.approximate(left, index, 7)
    if codec.vanishes:
        assert np.linalg.norm(left) < 1e-9 * np.linalg.norm(a)
    else:
        assert np.abs(left).max() <= 2.0**-11


def test_numbers_that_are_none_stay_none():
    """A run that overflows is noticed as it was, and never turned into numbers."""
    for codec in CODECS:
        for bad in (np.nan, np.inf):
            a = heavy(0)
            a[3, 4] = bad
            with np.errstate(all="ignore"):
                reads = draws(codec, a, 40)
                lefts = [a - read for read in reads]
            assert not any(np.isfinite(left).all() for left in lefts), codec


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
def test_a_message_takes_the_bits_that_are_counted(codec):
    """What a receiver must know: how many values there are, and of how many kinds."""
    a, plain = heavy(1), ff.codecs.Load(99, 64)
    load = codec.load(SHAPE, plain)
    assert load.bits < plain.bits
    for read in draws(codec, a, 5):
        if isinstance(codec, LowRank):
            assert np.linalg.matrix_rank(read) <= codec.rank
            assert load.numbers == codec.rank * (9 + 11)
        else:
            assert np.count_nonzero(read) <= load.numbers
            kinds = 2**load.width * getattr(codec, "_blocks", lambda size: 1)(99)
            assert len(np.unique(read[read != 0])) < kinds


def test_bits_are_those_of_the_books():
    plain = ff.codecs.Load(1000, 32)
    assert Integers(4).load((1000,), plain).bits == 4 * 1000 + 32
    assert Integers(4, block=64).load((1000,), plain).bits == 4 * 1000 + 16 * 32
    assert TopK(10).load((1000,), plain).bits == 10 * (32 + 10)
    assert TopK(0.5).load((1000,), plain).bits == 500 * 32 + 1000  # a bit each
    assert RandomK(10).load((1000,), plain).bits == 10 * 32
    assert FixedPoint(16, 8).load((1000,), plain).bits == 16 * 1000
    assert LowRank(2).load((50, 20), plain).bits == 2 * 70 * 32
    assert Chain(TopK(10), Integers(4)).load((1000,), plain).bits == 10 * 14 + 32


@every_codec
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bytes_are_read_as_what_was_sent_and_are_as_many_as_counted(codec, dtype):
    """To the bit: what a site keeps as sent is what its server adds."""
    width = 8 * np.dtype(dtype).itemsize
    bits = codec.load(SHAPE, ff.codecs.Load(99, width)).bits
    for seed, index in [(0, 0), (1, -1), (2, 70_000)]:
        a = heavy(seed, dtype)
        blob = codec.encode(a, index, 7)
        assert bits <= 8 * len(blob) < bits + 16  # parts end with a byte
        read = codec.decode(blob, SHAPE, a.dtype, index, 7)
        assert read.dtype == a.dtype
        assert np.array_equal(read, codec.approximate(a, index, 7))
    zero = codec.encode(0 * a, 3, 7)
    assert len(zero) == len(blob)
    assert not codec.decode(zero, SHAPE, a.dtype, 3, 7).any()


def test_a_block_is_sent_as_if_it_were_alone():
    a, whole, codec = heavy(2).reshape(-1), Integers(4), Integers(4, block=16)
    read = codec.approximate(a, 0, 7)
    for start in range(0, 99, 16):
        own = slice(start, start + 16)
        alone = whole.approximate(a[own], 0, 7)
        np.testing.assert_allclose(read[own], alone, rtol=1e-14)
    errors = [np.linalg.norm(a - c.approximate(a, 0, 7)) for c in (codec, whole)]
    assert errors[0] < 0.8 * errors[1]
    one = Integers(4, block=1000).approximate(a, 0, 7)
    np.testing.assert_allclose(one, whole.approximate(a, 0, 7), rtol=1e-14)


def test_without_blocks_it_is_called_as_states_on_disk_call_it():
    assert repr(Integers(4)) == "Integers(bits=4, rounding='nearest')"
    assert repr(Integers(4, block=64)).endswith("rounding='nearest', block=64)")
    assert eval(repr(Integers(4, block=64))) == Integers(4, block=64)


def test_the_largest_number_of_fixed_point_fits_its_bits_in_float32():
    """2^31 - 1 is no number of float32."""
    codec, a = FixedPoint(32, 0), np.array([1e12, -1e20, 3], "float32")
    assert codec.approximate(a, 0, 0).tolist() == [2**31, -(2**31), 3]
    blob = codec.encode(a, 0, 0)
    read = codec.decode(blob, (3,), a.dtype, 0, 0)
    assert len(blob) == 12 and same(read, codec.approximate(a, 0, 0))


@pytest.mark.parametrize("count", [1, 7, 100])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7, 8, 9, 16, 17, 20, 32])
def test_packed_numbers_come_back(bits, count):
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 2**bits, count)
    blob = packing.pack(codes, bits)
    assert len(blob) == -(-count * bits // 8)
    assert same(packing.unpack(blob, count, bits, 2**bits - 1), codes)
    with pytest.raises(ValueError, match="bytes, not"):
        packing.unpack(blob + b"\0", count, bits, 2**bits - 1)


@pytest.mark.parametrize(
    "codec, blob, words",
    [
        (Integers(4), bytes(8) + b"\xff" * 49 + b"\xf0", "a number is 15, above 14"),
        (Integers(4), bytes(8) + b"\x77" * 49 + b"\x71", "behind the last number"),
        (Integers(4), bytes(9), "it has 1 bytes, not 50"),
        (Integers(4, block=50), bytes(8 + 50), "it has 42 bytes, not 50"),
        (TopK(3), bytes(27), "places are not in order"),
        (TopK(3), b"\xff" * 27, "a number is 127, above 98|behind the last"),
        (TopK(0.5), bytes(13 + 400), "it has 0 numbers, not 50"),
    ],
)
def test_bytes_that_nobody_has_encoded_are_refused(codec, blob, words):
    with pytest.raises(ValueError, match=words):
        codec.decode(blob, SHAPE, np.dtype("float64"), 0, 7)


@pytest.mark.parametrize("size", [1e3, 1e16, 1e100])
def test_what_is_too_large_is_sent_as_the_largest_there_is(size):
    """However large: what is taken away from 1e16 must not round it off."""
    read = FixedPoint(8, 0).approximate(np.array([size, -size, 2.0]), 0, 0)
    assert read.tolist() == [127, -127, 2]

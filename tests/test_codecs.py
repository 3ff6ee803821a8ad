"""Codecs: what is read of what was sent, and the bits that takes."""

import numpy as np
import pytest
from helpers import same

import focusfl as ff
from focusfl import Chain, FixedPoint, Integers, LowRank, RandomK, TopK
from focusfl.codecs.dither import uniform

CODECS = [
    Integers(8),
    Integers(4, "stochastic"),
    Integers(2),
    Integers(2, "stochastic"),
    TopK(0.25),
    TopK(3),
    RandomK(0.25),
    LowRank(1),
    LowRank(2, passes=1),
    FixedPoint(16, 10),
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
            assert len(np.unique(read[read != 0])) < 2**load.width


def test_bits_are_those_of_the_books():
    plain = ff.codecs.Load(1000, 32)
    assert Integers(4).load((1000,), plain).bits == 4 * 1000 + 32
    assert TopK(10).load((1000,), plain).bits == 10 * (32 + 10)
    assert TopK(0.5).load((1000,), plain).bits == 500 * 32 + 1000  # a bit each
    assert RandomK(10).load((1000,), plain).bits == 10 * 32
    assert FixedPoint(16, 8).load((1000,), plain).bits == 16 * 1000
    assert LowRank(2).load((50, 20), plain).bits == 2 * 70 * 32
    assert Chain(TopK(10), Integers(4)).load((1000,), plain).bits == 10 * 14 + 32

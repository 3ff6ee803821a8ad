"""Exact samples of the discrete Gaussian, from the operating system's random bits.

Everything is computed in integers, so a sample is one of the law that the proof is about, with
no rounding that an observer could undo. The method is rejection, as in Karney (2016, "Sampling
exactly from the normal distribution") and Canonne, Kamath and Steinke (2020, "The discrete
Gaussian for differential privacy"), whose Bernoulli(exp(-x)) it uses.
"""

import os
from itertools import count

import numpy as np
from jaxtyping import Bool, Int

MAX_BITS = 31  # u**2 / 2**(2 * bits + 1) is then a fraction of 63 bits, and fits an int64
WIDTHS = 8, 16, 32, 64  # bits of the words that random bits are read in

Counts = Int[np.ndarray, " n"]


def discrete_gaussian(bits: int, size: int) -> Counts:
    """Draw integers z with probability proportional to exp(-z**2 / (2 * s**2)), s = 2**bits.

    With |z| = u + s v and 0 <= u < s, that is exp(-v**2 / 2) exp(-v u / s) exp(-u**2 / (2 s**2)):
    v is drawn by the first factor, u uniformly, and the pair is kept by the other two. Kept
    pairs get a sign; -0 is dropped, or 0 would be drawn twice as often as it should.

    Args:
        bits: from 0 to 31.
        size: number of samples, which are independent.
    """
    if not 0 <= bits <= MAX_BITS:
        raise ValueError(f"bits must be from 0 to {MAX_BITS}; got {bits}.")
    samples = np.zeros(0, np.int64)
    while len(samples) < size:
        # Of these, .49 are kept.
        v = _successes(2 * (size - len(samples)) + 64)  # as exp(-v / 2)
        v = v[_every(v * (v - 1), np.ones_like(v), 1)]  # as exp(-v / 2 - v (v - 1) / 2)
        u = _uniform(bits, len(v))
        kept = np.flatnonzero(_every(v, u, bits))
        kept = kept[_bernoulli(u[kept] ** 2, 2 * bits + 1)]
        z = u[kept] + (v[kept] << bits)
        negative = _uniform(1, len(z)) == 1
        z = np.where(negative, -z, z)[(z != 0) | ~negative]
        samples = np.concatenate([samples, z[: size - len(samples)]])
    return samples


def _bernoulli(a: Counts, bits: int) -> Bool[np.ndarray, " n"]:
    """Draw True with probability exp(-x), x = a / 2**bits in [0, 1].

    Trial k succeeds with probability x / k, so n trials in a row with x**n / n!. The first one
    that fails is odd with probability 1 - x + x**2 / 2! - ... = exp(-x).
    """
    odd, rows = np.ones(len(a), bool), np.arange(len(a))
    for k in count(1):
        rows = rows[_uniform(bits, len(rows)) < a[rows]]
        rows = rows[_one_in(k, len(rows))]
        if not rows.size:
            break
        odd[rows] = k % 2 == 0  # the first that fails is at least k + 1
    return odd


def _every(trials: Counts, a: Counts, bits: int) -> Bool[np.ndarray, " n"]:
    """Draw whether `trials` draws of `_bernoulli` are all True."""
    rows, good = np.arange(len(a)), np.ones(len(a), bool)
    for done in count():
        rows = rows[good[rows] & (trials[rows] > done)]
        if not rows.size:
            break
        good[rows] = _bernoulli(a[rows], bits)
    return good


def _successes(size: int) -> Counts:
    """Draw how many draws of Bernoulli(exp(-1 / 2)) come before the first that fails."""
    successes, rows = np.zeros(size, np.int64), np.arange(size)
    while rows.size:
        rows = rows[_bernoulli(np.ones_like(rows), 1)]
        successes[rows] += 1
    return successes


def _one_in(k: int, size: int) -> Bool[np.ndarray, " n"]:
    """Draw True with probability 1 / k.

    Of 16-bit numbers the last 65536 % k are drawn again: the others give every rest alike. k is
    65536 in one of 65535! cases.
    """
    if k == 1:
        return np.ones(size, bool)
    numbers, last = _uniform(16, size), (1 << 16) - (1 << 16) % k
    while (again := np.flatnonzero(numbers >= last)).size:
        numbers[again] = _uniform(16, again.size)
    return numbers % k == 0


def _uniform(bits: int, size: int) -> Counts:
    """Draw integers from 0 to 2**bits - 1, bits at most 63."""
    width = next(width for width in WIDTHS if bits <= width)
    words = np.frombuffer(os.urandom(size * width // 8), f"u{width // 8}")
    return (words & words.dtype.type((1 << bits) - 1)).astype(np.int64)

"""The gradient of a deployed private site: whole numbers with discrete noise.

Floating-point noise can be told from a gradient by its low bits (Mironov 2012). Here the part of
each unit, clipped, is rounded to multiples of a spacing that is public; the multiples are summed
as whole numbers, and get discrete Gaussian noise. All that leaves the site is computed from that
sum alone.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from focusfl.core import GradFn, tree
from focusfl.core.tree import Tree
from focusfl.privacy.clipping import clipped_gradient, contributions, sensitivity
from focusfl.privacy.discrete import MAX_BITS, discrete_gaussian
from focusfl.privacy.noise import PrivateObjective
from focusfl.problems.logistic import LogisticLoss

# Deviations of the noise to sqrt(d) grid steps, at least: rounding moves a unit's part by
# sqrt(d) / 2 steps, which is then less than 1 % of what it may be.
FINENESS = 64
MIN_BITS = 10
# Of a part's largest norm: what floating point may get wrong in it, with 10^9 numbers, is less.
SLACK = 1e-6
LARGEST = 1 << 52  # squared norm in grid steps that float64 sums exactly, whatever the order


class Grid(NamedTuple):
    """Whole numbers for gradients: nothing in it depends on what records contain."""

    bits: int  # noise has a standard deviation of 2**bits steps
    largest: int  # squared norm of a unit's part, in steps
    spacing: float  # size of a step


def private_gradient(objective: PrivateObjective, data: Tree) -> GradFn:
    """Make the gradient of a deployed site, (x, batch) -> gradient.

    Every call clips, rounds, sums, and adds new noise, which only the operating system's random
    bits decide. Without noise it clips alone.

    Args:
        objective: of a `Private` problem.
        data: of the site.

    Raises:
        ValueError: When it is called: if `grid` raises.
    """
    exact, level, clip = objective.exact, objective.level, objective.clip
    most = sensitivity(exact, level, clip, data)

    def gradient(x, batch):
        batch = batch if exact.stochastic else None
        arguments = exact, level, clip, x, data, batch
        if not objective.noise:
            return clipped_gradient(*arguments)[0]
        steps = grid(objective.noise, float(most), tree.size(x))
        total = sum_in_steps(contributions(*arguments), steps)
        noisy = steps.spacing * (total + discrete_gaussian(steps.bits, len(total)))
        grad = _like(x, noisy)
        if level == "record" and isinstance(exact, LogisticLoss):
            grad = tree.axpy(exact.penalty, x, grad)
        return grad

    return gradient


def grid(noise: float, sensitivity: float, dim: int) -> Grid:
    """Choose the grid of a gradient.

    The noise has deviation 2**bits, so with `noise` = 2**bits / radius a unit may move the sum by
    `radius` steps. Of these, sqrt(d) / 2 are for rounding; the rest is the sensitivity.

    Args:
        noise: standard deviation, divided by the largest change that a unit may cause.
        sensitivity: the largest norm of a unit's part, before it is rounded.
        dim: numbers in a gradient.

    Raises:
        ValueError: If noise is too large or too small for exact arithmetic, or a unit cannot
            change the gradient at all.
    """
    if not sensitivity > 0:
        raise ValueError("a private site needs a record that weighs something; it has none.")
    bits = max(MIN_BITS, math.ceil(math.log2(FINENESS * noise * math.sqrt(dim))))
    largest = math.floor((2**bits / Fraction(noise)) ** 2)
    if bits > MAX_BITS or largest > LARGEST:
        raise ValueError(
            "noise of a deployed site must be at least 2**-16, and its product with sqrt(d) at "
            f"most 2**25; got noise {noise:g} with d = {dim}."
        )
    radius = 2**bits / noise
    return Grid(bits, largest, sensitivity / ((radius - math.sqrt(dim) / 2) * (1 - SLACK)))


def sum_in_steps(
    parts: Iterable[tuple[Float[np.ndarray, "units d"], Float[np.ndarray, " units"]]], steps: Grid
) -> Int[np.ndarray, " d"]:
    """Clip the parts of units, round them to the grid, and add them up.

    No unit changes the sum by a norm of more than sqrt(steps.largest), whatever floating point
    does to its part before: the norm of what is summed is checked, in whole numbers. A part that
    exceeds it, or is not finite, counts as 0; by `SLACK`, none does but for overflows.

    Args:
        parts: as `contributions` gives them.
        steps: the grid.
    """
    total = np.int64(0)
    for rows, bounds in parts:
        with np.errstate(all="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            factors = bounds / np.maximum(norms, bounds) / steps.spacing
            rows = np.rint(factors[:, None] * rows)
            # Whole numbers as float64: exact up to 2**53, and no less than that beyond.
            fits = np.einsum("ij,ij->i", rows, rows) <= steps.largest
        rows[~fits] = 0  # not finite: it does not fit
        total = total + rows.sum(0).astype(np.int64)  # below 2**49: 2**23 of at most 2**26
    return np.asarray(total)


def _like(x: Tree, vector: Float[np.ndarray, " d"]) -> Tree:
    """Make a tree like x, of the same dtypes, from its numbers in order."""
    end = 0

    def leaf(a: np.ndarray) -> np.ndarray:
        nonlocal end
        start, end = end, end + np.size(a)
        return vector[start:end].reshape(np.shape(a)).astype(np.asarray(a).dtype)

    return tree.map(leaf, x)

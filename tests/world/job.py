"""What the jobs of the world are: three sites, two numbers, lines as gradients."""

from typing import NamedTuple

import numpy as np

import focusfl as ff
from focusfl.algorithms.wrapped import innermost
from focusfl.core import Algorithm
from focusfl.engines.protocol.books import MOST

NAMES = ["north", "east", "south"]
N = len(NAMES)
SLOPES = np.array([[1.0, 0.8], [1.2, 1.0], [0.9, 1.1]])  # of the sites' gradients
OFFSETS = np.array([[1.0, 2.0], [-1.0, 0.0], [0.5, -3.0]])
START = np.array([-1.0, 1.0])


class Violation(AssertionError):
    """What must never happen has happened."""


class Setting(NamedTuple):
    """What a job is."""

    algorithm: Algorithm
    lr: float
    local_steps: int
    copies: bool
    weights: tuple[float, ...] | None
    most: int = MOST  # lines in a ledger itself


def job(
    algorithm: Algorithm,
    local_steps: int = 2,
    copies: bool = False,
    weights: tuple[float, ...] | None = None,
) -> Setting:
    """A job with a step that suits it: servers that sum need smaller ones."""
    sums = isinstance(innermost(algorithm), ff.Focus | ff.AnchoredFocus | ff.TFocus)
    return Setting(algorithm, 0.2 if sums else 0.4, local_steps, copies, weights)

"""Step sizes that change from round to round: values that are called with a round.

`lr` of an engine may be any function of the round, one of optax's schedules too. Those
here need no jax, are optax's where it has them, and have a `repr` that makes them anew.

An exact algorithm stays exact under falling steps, if the run has converged before they
are too small to matter; a bias that follows who takes part stays. See docs/tuning.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.core.registry import SCHEDULES
from focusfl.core.validation import (
    check_count,
    check_flag,
    check_not_negative,
    check_positive,
    check_share,
    shown,
)


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant:
    """The same step in every round."""

    lr: float  # the step, positive

    def __post_init__(self):
        check_positive("lr", self.lr)

    def __call__(self, index: Any) -> Any:
        return self.lr + 0.0 * np.asarray(index)


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine:
    """Half a cosine from lr down to a share of it, after a linear warm-up.

    In round k of a warm-up of W rounds the step is (k + 1) / (W + 1) of lr.
    """

    lr: float  # the largest step, positive
    rounds: int  # at which the floor is reached, warm-up and all
    warmup: int = 0  # rounds until lr is reached
    floor: float = 0.0  # share of lr that it ends at

    def __post_init__(self):
        check_positive("lr", self.lr)
        check_count("rounds", self.rounds)
        check_count("warmup", self.warmup, least=0)
        check_share("floor", self.floor)
        if self.warmup >= self.rounds:
            raise ValueError(f"warmup must be below rounds; got {self.warmup} of {self.rounds}.")

    def __call__(self, index: Any) -> Any:
        k = np.asarray(index, float)
        share = np.clip((k - self.warmup) / (self.rounds - self.warmup), 0, 1)
        wave = self.floor + (1 - self.floor) * (1 + np.cos(np.pi * share)) / 2
        rising = (k + 1) / (self.warmup + 1)
        return self.lr * np.where(k < self.warmup, rising, wave)


@SCHEDULES.register("steps")
@dataclass(frozen=True)
class Steps:
    """A factor at every one of some rounds."""

    lr: float  # the first step, positive
    at: tuple | list = ()  # the rounds from which on it is smaller
    factor: float = 0.1  # of the step before, each time

    def __post_init__(self):
        check_positive("lr", self.lr)
        check_positive("factor", self.factor)
        several = isinstance(self.at, list | tuple)
        if not several or not all(type(k) is int and k > 0 for k in self.at):
            raise ValueError(f"at must be a list of rounds, each at least 1; got {shown(self.at)}.")
        object.__setattr__(self, "at", tuple(sorted(self.at)))

    def __call__(self, index: Any) -> Any:
        passed = np.searchsorted(np.array(self.at, int), index, side="right")
        return self.lr * self.factor**passed


@SCHEDULES.register("exponential")
@dataclass(frozen=True)
class Exponential:
    """lr times a rate to the power of rounds over `every`."""

    lr: float  # the first step, positive
    rate: float = 0.5  # what is left of it after every so many rounds, at most 1
    every: int = 100  # rounds
    floor: float = 0.0  # share of lr that it does not fall below
    staircase: bool = False  # fall at once every so many rounds, not all the time

    def __post_init__(self):
        check_positive("lr", self.lr)
        check_positive("rate", self.rate)
        check_share("rate", self.rate)
        check_count("every", self.every)
        check_share("floor", self.floor)
        check_flag("staircase", self.staircase)

    def __call__(self, index: Any) -> Any:
        k = np.asarray(index, float) / self.every
        k = np.floor(k) if self.staircase else k
        return self.lr * np.maximum(self.rate**k, self.floor)


@SCHEDULES.register("polynomial")
@dataclass(frozen=True)
class Polynomial:
    """A power of the share of rounds that are left; linear with power 1."""

    lr: float  # the first step, positive
    rounds: int  # at which the floor is reached
    power: float = 1.0  # of the share of rounds left, positive
    floor: float = 0.0  # share of lr that it ends at

    def __post_init__(self):
        check_positive("lr", self.lr)
        check_count("rounds", self.rounds)
        check_positive("power", self.power)
        check_share("floor", self.floor)

    def __call__(self, index: Any) -> Any:
        left = 1 - np.clip(np.asarray(index, float) / self.rounds, 0, 1)
        return self.lr * ((1 - self.floor) * left**self.power + self.floor)


@SCHEDULES.register("inverse_sqrt")
@dataclass(frozen=True)
class InverseSqrt:
    """lr over the root of 1 + rounds / every: as stochastic gradients want it."""

    lr: float  # the first step, positive
    every: float = 1.0  # rounds after which it has fallen to lr / sqrt(2)
    power: float = 0.5  # in place of a root

    def __post_init__(self):
        check_positive("lr", self.lr)
        check_positive("every", self.every)
        check_not_negative("power", self.power)

    def __call__(self, index: Any) -> Any:
        return self.lr * (1 + np.asarray(index, float) / self.every) ** -self.power


__all__ = ["SCHEDULES", "Constant", "Cosine", "Exponential", "InverseSqrt", "Polynomial", "Steps"]

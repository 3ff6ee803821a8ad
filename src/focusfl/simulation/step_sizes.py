"""Step sizes of a run: one number, or a function of the round, looked at beforehand."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from focusfl.core.fingerprint import stable_repr
from focusfl.core.validation import shown

Schedule = Callable[[Any], Any]  # round -> step
LEAST = 256  # entries of a table that is compiled for
PROBES = 16  # rounds at which a whole table is compared with single calls


class Table(NamedTuple):
    """A schedule, and its step in every round."""

    schedule: Schedule
    steps: np.ndarray  # (rounds,) of float64, positive and finite

    def __float__(self) -> float:
        return float(self.steps.max())


StepSizes = float | Table  # of one run


def tabled(lr: Any, rounds: int) -> Table:
    """Ask a schedule for all of its steps; ValueError names the round it fails in.

    At once if it takes an array of rounds and gives what single calls give; else round
    by round. Where jax is loaded, in float64.
    """
    if isinstance(lr, type):
        raise ValueError(
            f"lr must be a number or a function of the round; got {shown(lr)}; call it."
        )
    with _float64():
        steps = _at_once(lr, rounds)
        if steps is None:
            steps = np.array([_called(lr, k) for k in range(rounds)])
    wrong = np.flatnonzero(~((steps > 0) & np.isfinite(steps)))
    if wrong.size:
        _refuse(float(steps[wrong[0]]), int(wrong[0]))
    return Table(lr, steps)


def _at_once(lr: Schedule, rounds: int) -> np.ndarray | None:
    """The steps from one call with all rounds; None if it is made for one at a time."""
    probes = np.unique(np.geomspace(1, rounds, PROBES).astype(int) - 1)
    try:
        steps = np.asarray(lr(np.arange(rounds)), float)
        single = np.array([_called(lr, int(k)) for k in probes])
    except Exception:  # of any kind: it is asked again, and then it must answer
        return None
    if steps.shape != (rounds,):
        return None
    near = np.allclose(steps[probes], single, rtol=1e-12, atol=0, equal_nan=True)
    return steps if near else None


def step_at(lr: Any, index: int) -> float:
    """The step of one round, checked."""
    if not callable(lr):
        return float(lr)
    with _float64():
        step = _called(lr, index)
    if not 0 < step < np.inf:
        _refuse(step, index)
    return step


def step_of(lr: StepSizes, index: int) -> float:
    """The step of one round of a run."""
    return float(lr.steps[index]) if isinstance(lr, Table) else lr


def stacked(lrs: Sequence[StepSizes]) -> list[Any]:
    """The step sizes of runs side by side, in one form: numbers, if all are.

    Tables are as long as a power of two: other rounds are no other compilation.
    """
    tables = [lr.steps for lr in lrs if isinstance(lr, Table)]
    if not tables:
        return list(lrs)
    length = max(LEAST, 1 << (len(tables[0]) - 1).bit_length())
    rows = [lr.steps if isinstance(lr, Table) else np.array([lr]) for lr in lrs]
    return [np.pad(row, (0, length - len(row)), mode="edge") for row in rows]


def used(lr: Any, rounds: int, diverged_at: int | None) -> float:
    """The largest step of so many rounds, and of the one that broke the run."""
    if not isinstance(lr, Table):
        return float(lr)
    return float(lr.steps[: max(1, rounds + (diverged_at is not None))].max())


def slows(lr: Any, rounds: int) -> bool:
    """Whether the steps of so many rounds end at less than half of the largest."""
    if not callable(lr):
        return False
    steps = tabled(lr, max(1, rounds)).steps
    return bool(steps[-1] < steps.max() / 2)


def in_words(lr: Any) -> str | None:
    """A schedule as it can be written down; nothing of a number."""
    if isinstance(lr, Table):
        lr = lr.schedule
    return stable_repr(lr) if callable(lr) else None


def _called(lr: Any, index: int) -> float:
    try:
        value = lr(index)
        step = float(value) if np.ndim(value) == 0 else None
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            "lr must be a number, or a function that gives one for every round; in "
            f"round {index} it raised {reason[:200].rstrip('.')}."
        ) from error
    if step is None or isinstance(value, bool | str):
        raise ValueError(
            "lr as a function of the round must give one number; it gave "
            f"{shown(value)} in round {index}."
        )
    return step


def _refuse(step: float, index: int) -> None:
    raise ValueError(
        f"lr must be positive and finite in every round; it is {step} in round {index}."
    )


def _float64() -> AbstractContextManager:
    """A schedule of jax's would round to 32 bits, and differently in each engine."""
    if "jax" not in sys.modules:
        return nullcontext()
    import jax

    return jax.enable_x64(True)

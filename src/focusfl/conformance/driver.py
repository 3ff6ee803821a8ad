"""Drive somebody's implementation round by round, and say what is wrong with it.

Imports numpy alone: in a process of its own it may be another package's environment.
"""

import inspect
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from focusfl.conformance.problem import standard
from focusfl.conformance.rows import Row, schedule
from focusfl.core.validation import numeric, shown

METHODS = ("start", "round", "model")
SINGLE = 1e-4  # how far from x0 a model of single precision may begin


class Failed(Exception):
    """An implementation that cannot be judged; one line says why."""


class NotApplicable(Exception):
    """A row that an implementation says it does not know."""


class Path(NamedTuple):
    """Models after so many rounds."""

    models: np.ndarray
    single: bool  # precision
    late: bool = False  # whether the time of the row was over before the rounds were


class Driver:
    """One implementation on one row at one step, in this process."""

    def __init__(self, make: Callable, row: Row, lr: float, limit: float):
        self.problem = (standard().unequal() if row.unequal else standard()).at(lr)
        self.ends, self.number, self.single = time.monotonic() + limit, 0, False
        self.coming = schedule(row)
        one = self._call("making it", make, self.problem)
        self.one = one
        for name in METHODS:
            if not callable(getattr(one, name, None)):
                raise Failed(
                    f"it must have start(), round(state, participants, lost) and "
                    f"model(state); got {shown(one)}, without {name}."
                )
        self.told = _takes_three(one.round)
        if row.loses and not self.told:
            raise NotApplicable("round takes no third argument: who is lost")
        if row.unequal and not getattr(one, "own_steps", False):
            raise NotApplicable("own_steps is not set: steps are equal")
        self.state = self._call("start", one.start)
        self.stateless = self.state is None
        first = self._model()
        away = np.abs(first - self.problem.x0).max() / np.abs(self.problem.x0).max()
        if not away <= SINGLE:
            raise Failed(f"the model must begin at problem.x0; got {first.tolist()}.")

    def go(self, rounds: int) -> Path:
        """The models after each of so many more rounds, until one is not finite
        or the time is over."""
        models = np.full((rounds, self.problem.dim), np.nan)
        for k in range(rounds):
            participants, lost = next(self.coming)
            arguments = (participants, lost) if self.told else (participants,)
            self.number += 1
            state = self._call("round", self.one.round, self.state, *arguments)
            if state is None and not self.stateless:
                raise Failed("round returned None; it must return the next state.")
            self.state = state
            models[k] = self._model()
            late = time.monotonic() > self.ends
            if late or not np.isfinite(models[k]).all():
                return Path(models[: k + 1], self.single, late)
        return Path(models, self.single)

    def _model(self) -> np.ndarray:
        got = self._call("model", self.one.model, self.state)
        try:
            array = numeric("model(state)", got)
        except ValueError as error:
            raise Failed(str(error)) from None
        if array.shape != (self.problem.dim,):
            raise Failed(
                f"model(state) must have shape ({self.problem.dim},); got "
                f"{array.shape}{self._when()}."
            )
        self.single = array.dtype.itemsize < 8 and array.dtype.kind == "f"
        return np.asarray(array, float)

    def _call(self, what: str, function: Callable, *arguments: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return function(*arguments)
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())
            raise Failed(
                f"{what} raised {type(error).__name__}{self._when()}{': ' * bool(said)}{said[:200]}"
            ) from None

    def _when(self) -> str:
        return f" in round {self.number}" if self.number else ""


def _takes_three(function: Callable) -> bool:
    """Whether a round is told whose reply is lost."""
    try:
        inspect.signature(function).bind(None, [], [])
    except TypeError:
        return False
    except ValueError:  # some builtins have no signature
        return True
    return True

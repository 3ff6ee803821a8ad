"""Drive somebody's implementation round by round, and say what is wrong with it.

As `python -m focusfl.conformance.driver module:name` it does so in a process of its own,
which can be killed: requests and answers are lines of JSON on stdin and stdout, and what the
implementation prints goes to stderr. Imports numpy alone, as this may be another package's
environment.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from focusfl.conformance.problem import ROWS, Row, schedule, standard
from focusfl.core.validation import accepts, numeric, shown

PR_SET_PDEATHSIG = 1
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
        self.schedule = schedule(row)
        driven = self._call("making it", make, self.problem)
        self.driven = driven
        for name in METHODS:
            if not callable(getattr(driven, name, None)):
                raise Failed(
                    f"it must have start(), round(state, participants, lost) and "
                    f"model(state); got {shown(driven)}, without {name}."
                )
        self.takes_lost = accepts(driven.round, None, [], [])
        if row.loses and not self.takes_lost:
            raise NotApplicable("round takes no third argument: who is lost")
        if row.unequal and not getattr(driven, "own_steps", False):
            raise NotApplicable("own_steps is not set: steps are equal")
        self.state = self._call("start", driven.start)
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
            participants, lost = next(self.schedule)
            arguments = (participants, lost) if self.takes_lost else (participants,)
            self.number += 1
            state = self._call("round", self.driven.round, self.state, *arguments)
            if state is None and not self.stateless:
                raise Failed("round returned None; it must return the next state.")
            self.state = state
            models[k] = self._model()
            late = time.monotonic() > self.ends
            if late or not np.isfinite(models[k]).all():
                return Path(models[: k + 1], self.single, late)
        return Path(models, self.single)

    def _model(self) -> np.ndarray:
        got = self._call("model", self.driven.model, self.state)
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
            message = " ".join(str(error).split())
            raise Failed(
                f"{what} raised {type(error).__name__}{self._when()}"
                f"{': ' * bool(message)}{message[:200]}"
            ) from None

    def _when(self) -> str:
        return f" in round {self.number}" if self.number else ""


def load(name: str) -> Any:
    """Import what makes an implementation, by its name as "module:object"; the current
    folder comes first."""
    module, _, attribute = name.partition(":")
    try:
        loaded = import_module(module)
    except Exception as error:
        raise ValueError(f"{name!r} cannot be imported: {type(error).__name__}: {error}") from error
    make = as_make(getattr(loaded, attribute, None))
    if not callable(make):
        known = [n for n, one in vars(loaded).items() if callable(one) and n[0] != "_"]
        raise ValueError(
            f"{name!r}: {module} has no class or function {attribute!r}; it has "
            f"{', '.join(known) or 'none'}."
        )
    return make


def as_make(implementation: Any) -> Any:
    """Give a function of a problem; an algorithm of the contract is driven by its own."""
    from focusfl.core import Algorithm

    if isinstance(implementation, type) and issubclass(implementation, Algorithm):
        implementation = implementation()
    if isinstance(implementation, Algorithm):
        from focusfl.conformance.rules import of_algorithm

        return of_algorithm(implementation)
    return implementation


def main() -> None:
    """Answer requests until there are no more."""
    # Whoever asks may be killed while a round hangs: then Linux ends this too.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, prints there
    # Its last words must be there when the process ends without a flush.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def answer(**what) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    try:
        make = load(sys.argv[1])
    except ValueError as error:
        return answer(refused=" ".join(str(error).split()))
    answer(ready=True)
    driver = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "row" in request:
                driver = None  # one at a time
                driver = Driver(make, ROWS[request["row"]], request["lr"], request["limit"])
                answer(open=True)
            else:
                assert driver
                path = driver.go(request["rounds"])
                answer(**path._asdict() | {"models": path.models.tolist()})
        except NotApplicable as why:
            answer(not_applicable=str(why))
        except Failed as why:
            answer(failed=str(why))


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main()

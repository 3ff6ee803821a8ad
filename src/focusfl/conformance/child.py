"""An implementation in a process of its own, which can be killed.

Run as `python -m focusfl.conformance.child module:name`, by any Python that has numpy.
Requests and answers are lines of JSON on stdin and stdout; what the implementation
prints goes to stderr.
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from focusfl.conformance.driver import Driver, Failed, NotApplicable
from focusfl.conformance.rows import ROWS

PR_SET_PDEATHSIG = 1


def made_by(name: str) -> Any:
    """What makes the implementation that is named, by Python's own rules of import:
    this folder comes first."""
    module, _, attribute = name.partition(":")
    try:
        loaded = import_module(module)
    except Exception as error:
        raise ValueError(f"{name!r} cannot be imported: {type(error).__name__}: {error}") from error
    found = as_make(getattr(loaded, attribute, None))
    if not callable(found):
        known = [n for n, one in vars(loaded).items() if callable(one) and n[0] != "_"]
        raise ValueError(
            f"{name!r}: {module} has no class or function {attribute!r}; it has "
            f"{', '.join(known) or 'none'}."
        )
    return found


def as_make(found: Any) -> Any:
    """A function of a problem; an algorithm of the contract is driven by its own."""
    from focusfl.core import Algorithm

    if isinstance(found, type) and issubclass(found, Algorithm):
        found = found()
    if isinstance(found, Algorithm):
        from focusfl.conformance.algorithm import of_algorithm

        return of_algorithm(found)
    return found


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
        make = made_by(sys.argv[1])
    except ValueError as error:
        return answer(refused=" ".join(str(error).split()))
    answer(ready=True)
    driver = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "row" in asked:
                driver = None  # one at a time
                driver = Driver(make, ROWS[asked["row"]], asked["lr"], asked["limit"])
                answer(open=True)
            else:
                assert driver
                path = driver.go(asked["rounds"])
                answer(**path._asdict() | {"models": path.models.tolist()})
        except NotApplicable as why:
            answer(not_applicable=str(why))
        except Failed as why:
            answer(failed=str(why))


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main()

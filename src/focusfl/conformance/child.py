"""An implementation in a process of its own, which can be killed.

Run as `python -m focusfl.conformance.child module:name`, by any Python that has numpy.
Requests and answers are lines of JSON on stdin and stdout; what the implementation
prints goes to stderr.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from focusfl.conformance.driver import Driver, Failed, NotApplicable
from focusfl.conformance.rows import ROWS
from focusfl.experiment.kinds import find


def made_by(name: str):
    """What makes the implementation that is named, looked for in this folder first."""
    found = find("algorithms", name, {}, Path.cwd()).made_by
    return as_make(found)


def as_make(found):
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
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, prints there

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

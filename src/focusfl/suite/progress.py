"""Progress of the suite on stderr: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator
from math import inf

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from focusfl.studies.report.terminal import SILENCE, say
from focusfl.suite.run import Finished
from focusfl.suite.store import Row

Began = Callable[[int, int], Finished]
WINDOW = 600  # seconds that the time left is estimated by


@contextlib.contextmanager
def progress(minutes: float | None = None) -> Iterator[Began]:
    """Show how far a run of the suite has come, and stop it after `minutes`.

    Gives a function for `began` of `run`: it takes how many results are missing and how
    many there are in all, and gives what is called with every result.
    """
    end = inf if minutes is None else time.monotonic() + 60 * minutes
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(), console=console, transient=True,
        speed_estimate_period=WINDOW, disable=not console.is_terminal,
    ) as bars:  # fmt: skip

        def began(todo: int, all: int) -> Finished:
            task = bars.add_task("compiling", total=all, completed=all - todo)
            if bars.disable:
                say(f"{all - todo} of {all} results are there, {todo} to find")
            start = last = time.monotonic()
            done = 0

            def finished(row: Row) -> bool:
                nonlocal last, done
                done, now = done + 1, time.monotonic()
                title = f"{row.cell} · {row.entrant}"
                bars.update(task, advance=1, description=title)
                if bars.disable and (now - last > SILENCE or done == todo):
                    last = now
                    minutes_left = (now - start) / done * (todo - done) / 60
                    there = f"{all - todo + done} of {all}"
                    say(f"{there}: {title}; about {minutes_left:.0f} min left")
                return now > end

            return finished

        yield began

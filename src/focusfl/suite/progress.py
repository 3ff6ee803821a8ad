"""How far a run of the suite has come, on stderr: a bar, or a line now and then."""

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
    """Give what `run` tells how much there is to do, and of every result; after so many
    minutes it says that it is enough."""
    end = None if minutes is None else time.monotonic() + 60 * minutes

    def timed(began: Began) -> Began:
        def both(todo: int, all: int) -> Finished:
            tell = began(todo, all)
            return lambda row: bool(tell(row)) or (end or inf) < time.monotonic()

        return both

    console = Console(stderr=True)
    if not console.is_terminal:
        yield timed(_lines)
        return
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(), console=console, transient=True,
        speed_estimate_period=WINDOW,
    )  # fmt: skip
    with bars:

        def began(todo: int, all: int) -> Callable[[Row], None]:
            task = bars.add_task("compiling", total=all, completed=all - todo)

            def tell(row: Row) -> None:
                about = f"{row.cell} · {row.entrant}"
                bars.update(task, advance=1, description=about)

            return tell

        yield timed(began)


def _lines(todo: int, all: int) -> Callable[[Row], None]:
    say(f"{all - todo} of {all} results are there, {todo} to find")
    start = last = time.monotonic()
    done = 0

    def tell(row: Row) -> None:
        nonlocal last, done
        done += 1
        now = time.monotonic()
        if now - last > SILENCE or done == todo:
            last = now
            left = (now - start) / done * (todo - done)
            say(
                f"{all - todo + done} of {all}: {row.cell} · {row.entrant}; "
                f"about {left / 60:.0f} min left"
            )

    return tell

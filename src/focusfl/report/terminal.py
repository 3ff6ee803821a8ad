"""What a person sees in a terminal: tables on stdout, progress on stderr."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

SILENCE = 10  # seconds between lines where there is no terminal
COLOURS = {"exact": "green", "biased": "yellow", "diverged": "red"}


def print_table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table; verdicts have a colour, columns of numbers stand to the right."""
    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for header, *column in zip(headers, *rows, strict=True):
        numeric = all(text[:1] in "0123456789–" for text in column)
        table.add_column(header, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(
            *(Text(text, COLOURS.get(text.split(" ")[0], "")) for text in row)
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable]:
    """Show a live bar on a terminal, and elsewhere a line per run and now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} rounds"), _Rate(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("compiling", total=total)

        def watch(scene: str, name: str):
            before = 0

            def update(done: int, metrics: Mapping[str, float]) -> None:
                nonlocal before
                bars.update(task, description=f"{scene} · {name}{_so_far(metrics)}")
                bars.advance(task, done - before)
                before = done

            return update

        yield watch


class _Rate(ProgressColumn):
    """Rounds per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.3g} rounds/s")


def _lines(scene: str, name: str):
    print(f"running {scene} · {name}", file=sys.stderr)
    start = last = time.monotonic()

    def update(done: int, metrics: Mapping[str, float]) -> None:
        nonlocal last
        if time.monotonic() - last > SILENCE:
            last = time.monotonic()
            rate = done / (last - start)
            note = f"{done:,} rounds, {rate:,.3g} rounds/s{_so_far(metrics)}"
            print(f"{scene} · {name}: {note}", file=sys.stderr)

    return update


def _so_far(metrics: Mapping[str, float]) -> str:
    if "distance" in metrics:
        return f" · error {metrics['distance']:.0e}"
    return f" · accuracy {metrics['accuracy']:.3f}" if "accuracy" in metrics else ""

"""What a person sees in a terminal: tables on stdout, progress on stderr."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

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
    """Show a live bar on a terminal, and a line per run elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:

        def lines(scene: str, name: str):
            print(f"running {scene} · {name}", file=sys.stderr)
            return lambda done, metrics: None

        yield lines
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} rounds"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("compiling", total=total)

        def watch(scene: str, name: str):
            before = 0

            def update(done: int, metrics: Mapping[str, float]) -> None:
                nonlocal before
                error = metrics.get("distance")
                note = "" if error is None else f" · error {error:.0e}"
                bars.update(task, description=f"{scene} · {name}{note}")
                bars.advance(task, done - before)
                before = done

            return update

        yield watch

"""What a person sees in a terminal: tables on stdout, progress on stderr."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
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

from focusfl.experiment.config import Study
from focusfl.experiment.results import Run
from focusfl.experiment.study import Batch, Watch

Shown = tuple[Watch | None, Callable[[list[Run]], None]]

SILENCE = 10  # seconds between lines where there is no terminal
COLOURS = {
    "exact": "green", "biased": "yellow", "diverged": "red",
    "better": "green", "worse": "red",
}  # fmt: skip


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

            def update(done: int, metrics: Mapping[str, Any]) -> None:
                nonlocal before
                bars.update(task, description=f"{scene} · {name}{_so_far(metrics)}")
                bars.advance(task, done - before)
                before = done

            return update

        yield watch


@contextlib.contextmanager
def study_progress(study: Study, todo: Sequence[Batch]) -> Iterator[Shown]:
    """Show a study: a bar for every batch that runs, and one for all of them."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines, partial(_ended, console)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24),
        TextColumn("{task.completed:,}/{task.total:,} rounds"), _Rate(),
        TimeRemainingColumn(compact=True), TextColumn("{task.fields[so_far]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        rounds, several = study.rounds, len(todo) > 1
        whole = bars.add_task(
            study.name, total=rounds * len(todo), so_far="", visible=several
        )

        def watch(scene: str, name: str):
            own = bars.add_task(f"{scene} · {name}", total=rounds, so_far="")
            before = 0

            def update(done: int, metrics: Mapping[str, Any]) -> None:
                nonlocal before
                bars.update(own, completed=done, so_far=_so_far(metrics).strip(" ·"))
                bars.advance(whole, done - before)
                before = done
                if done >= rounds:
                    bars.update(own, visible=False)

            return update

        yield watch, partial(_ended, console)


@contextlib.contextmanager
def silence(study: Study, todo: Sequence[Batch]) -> Iterator[Shown]:
    """Show nothing."""
    del study, todo
    yield None, lambda runs: None


def _ended(console: Console, runs: list[Run]) -> None:
    """A line for runs that have ended together."""
    row, words = runs[0].row, [run.row["verdict"] for run in runs]
    told = ", ".join(
        word if len(runs) == 1 else f"{words.count(word)} {word}"
        for word in dict.fromkeys(words)
    )
    best = min(run.row["error"] for run in runs)
    seconds = sum(run.row["seconds"] for run in runs)
    console.print(
        f"{row['participation']} · {row['algorithm']}: {told}, "
        f"error {best:.0e}, {seconds:.1f} s",
        highlight=False,
    )


class _Rate(ProgressColumn):
    """Rounds per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{_speed(speed)} rounds/s")


def _lines(scene: str, name: str):
    _say(f"running {scene} · {name}")
    start = last = time.monotonic()

    def update(done: int, metrics: Mapping[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last > SILENCE:
            last = time.monotonic()
            rate = done / (last - start)
            note = f"{done:,} rounds, {_speed(rate)} rounds/s{_so_far(metrics)}"
            _say(f"{scene} · {name}: {note}")

    return update


def _speed(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")  # at once: several threads do


def _so_far(metrics: Mapping[str, Any]) -> str:
    """How far the best run has come."""
    if "distance" in metrics:
        return f" · error {np.min(metrics['distance']):.0e}"
    if "accuracy" in metrics:
        return f" · accuracy {np.max(metrics['accuracy']):.3f}"
    return ""

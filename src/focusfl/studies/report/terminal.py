"""What a person sees in a terminal: tables on stdout, progress on stderr."""

import contextlib
import re
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
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from focusfl.core.validation import printable
from focusfl.studies.report.columns import COLUMNS, short
from focusfl.studies.report.groups import bests, group_runs
from focusfl.studies.report.names import label
from focusfl.studies.runner import RunGroup, Watch
from focusfl.studies.spec import StudySpec
from focusfl.studies.store import LOSS, Run

Shown = tuple[Watch | None, Callable[[list[Run]], None]]

LONGEST = 14  # letters of a scenario's name beside a bar
SILENCE = 10  # seconds between lines where there is no terminal
COLOURS = {
    "exact": "green", "biased": "yellow", "oscillating": "yellow", "diverged": "red",
    "better": "green", "worse": "red",
}  # fmt: skip


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; verdicts have a colour, columns of numbers stand to the right."""
    table = Table(
        title=printable(title) or None, box=box.SIMPLE_HEAD, title_justify="left",
        collapse_padding=True,
    )  # fmt: skip
    rows = [[printable(text) for text in row] for row in rows]
    for header, *column in zip(map(printable, headers), *rows, strict=True):
        numeric = all(text[:1] in "0123456789–∞" or text == "never" for text in column)
        if numeric:  # in two lines, so that a table fits in 80 columns
            header = "\n".join(header.rsplit(" ", 1))
        table.add_column(
            header, justify="right" if numeric else "left", no_wrap=numeric,
            overflow="fold",
        )  # fmt: skip
    for row in rows:
        table.add_row(*(Text(text, COLOURS.get(text.split(" ")[0], "")) for text in row))
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def print_text(text: str) -> None:
    """Print a sentence; on a terminal, broken between words."""
    wide = None if sys.stdout.isatty() else 10_000
    plain = printable(text, lines=True)
    Console(width=wide).print(plain, highlight=False, markup=False)


@contextlib.contextmanager
def study_progress(study: StudySpec, todo: Sequence[RunGroup]) -> Iterator[Shown]:
    """Show a study that runs: bars on a terminal, a line now and then elsewhere.

    Gives what to call as a group begins, and what to call with runs that have ended.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines, partial(print_end, console)
        return
    plain = partial(Column, no_wrap=True)  # in 80 columns a long name is cut, numbers are not
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=plain(ratio=1, overflow="ellipsis")),
        BarColumn(bar_width=10), _Rounds(table_column=plain()), _Rate(table_column=plain()),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[so_far]}", table_column=plain()),
        console=console, transient=True, expand=True,
    ) as bars:  # fmt: skip
        rounds = study.rounds
        total = bars.add_task(
            study.name, total=rounds * len(todo), so_far="", visible=len(todo) > 1
        )

        def watch(scenario: str, name: str):
            short = scenario[: LONGEST - 1] + "…" if len(scenario) > LONGEST else scenario
            title = _title(short, name)
            group = bars.add_task(title, total=rounds, so_far="", start=False)
            before = 0

            def update(done: int, metrics: Mapping[str, Any]) -> None:
                nonlocal before
                if done > before:
                    for task in (group, total):
                        bars.start_task(task)  # time counts from here: it is compiled
                        bars.advance(task, done - before)
                bars.update(group, so_far=_so_far(metrics), visible=done < rounds)
                before = done

            return update

        yield watch, partial(print_end, console)


def _title(scenario: str, name: str) -> str:
    """What runs, for people: the name of a group begins with that of its algorithm."""
    algorithm, *rest = re.split("( · | at )", name, maxsplit=1)
    return printable(f"{scenario} · {label(algorithm)}{''.join(rest)}")


def print_end(console: Console, runs: list[Run]) -> None:
    """Print a line for runs that have ended together: of several step sizes, the best."""
    groups = group_runs(runs)
    seconds = sum(run.row["seconds"] for run in runs)
    for best in bests(groups):
        step = f" (lr {short(best.median('lr'))}, best of {len(groups)})"
        measure = LOSS if best.row["measure"] == LOSS else "error"
        text = (
            f"{best.scenario} · {best.name}{step if len(groups) > 1 else ''}: {best.verdict()}, "
            f"{measure} {COLUMNS['error'].write(best.median('error'))}, {seconds:.1f} s"
        )
        console.print(
            printable(text), highlight=False, markup=False,
            soft_wrap=not console.is_terminal,
        )  # fmt: skip


class _Rounds(ProgressColumn):
    """How many rounds are done; before the first are, what it is waiting for."""

    def render(self, task: Task) -> Text:
        if not task.completed:
            return Text("compiling")
        return Text(f"{task.completed:,.0f}/{task.total or 0:,.0f}", justify="right")


class _Rate(ProgressColumn):
    """Rounds per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{_speed(speed)}/s")


def _lines(scenario: str, name: str):
    title = _title(scenario, name)
    say(f"running {title}: compiling")
    start = last = time.monotonic()

    def update(done: int, metrics: Mapping[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last > SILENCE:
            last = time.monotonic()
            rate = done / (last - start)
            note = f"{done:,} rounds, {_speed(rate)} rounds/s, {_so_far(metrics)}"
            say(f"{title}: {note}".rstrip(", "))

    return update


def _speed(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def say(line: str) -> None:
    """Say one line on stderr."""
    sys.stderr.write(printable(line) + "\n")  # at once: several threads do


def _so_far(metrics: Mapping[str, Any]) -> str:
    """How far the best run has come."""
    best = "best " * (max(map(np.size, metrics.values()), default=1) > 1)
    if "distance" in metrics:
        return f"{best}{np.min(metrics['distance']):.0e}"
    if "accuracy" in metrics:
        return f"{best}{np.max(metrics['accuracy']):.3f}"
    return ""

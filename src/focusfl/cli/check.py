"""`focusfl check`: is it exact, and whose rule does it follow?"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from focusfl.cli.options import Option, command, words

# As `conformance.ROWS` has them; spelled out so that the parser need not import it.
ROWS = ("full", "uniform", "coins", "blocks", "sizes", "lost", "steps")


@command(
    "check",
    "find out whether a federated implementation is exact, and whose rule it is; "
    "exit 0 if all rows are exact, 1 if one is not, 2 for bad input",
    "focusfl check my_module:make",
    Option("implementation", metavar="MODULE:OBJECT",
           help="make(problem), in module.py of this folder or any module Python finds"),
    Option("--rows", type=words, metavar="A,B", words=ROWS,
           help=f"only these: {', '.join(ROWS)}"),
    Option("--limit", type=float, default=60.0, metavar="SECONDS",
           help="that a row may take at one step, else it is killed (60)"),
    Option("--python", default="", metavar="FILE",
           help="the interpreter to run it with, such as that of another environment"),
)  # fmt: skip
def _check(options: argparse.Namespace) -> int:
    """Run every row in a process of its own, and print what became of it."""
    from focusfl import conformance
    from focusfl.studies.report import terminal

    rows = ROWS if options.rows is None else options.rows
    with _shown(options.implementation) as watch:
        report = conformance.check(
            options.implementation, rows=rows, limit=options.limit,
            python=options.python, watch=watch,
        )  # fmt: skip
    if options.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        terminal.print_table(
            f"{options.implementation}, in seven ways of taking part"
            if len(rows) == len(ROWS) else options.implementation,
            ("row", "who takes part", "verdict", "why", "like"),
            [
                (row.row, conformance.ROWS[row.row].what, row.verdict, row.reason,
                 " or ".join(row.like[:2]) + " …" * (len(row.like) > 2))
                for row in report.rows
            ],
        )  # fmt: skip
        terminal.print_text(f"{options.implementation} {report.words()}.")
    return 0 if report.exact else 1


@contextmanager
def _shown(name: str) -> Iterator[Callable[[str, int], None]]:
    """On a terminal what is being done; elsewhere a line per row."""
    from rich.console import Console

    console, seen = Console(stderr=True), set()
    with console.status(f"{name}: starting") as status:

        def watch(row: str, done: int) -> None:
            if console.is_terminal:
                status.update(f"{name}: {row}, {done:,} rounds")
            elif row not in seen:
                seen.add(row)
                sys.stderr.write(f"checking {name}: {row}\n")

        yield watch

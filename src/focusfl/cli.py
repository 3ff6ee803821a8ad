"""The command line: parse, call, print. Results to stdout, progress to stderr."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from focusfl import __version__

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except ValueError as error:
        print(f"focusfl: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"focusfl: cannot use{where}: {error.strerror or error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("focusfl: interrupted; nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="focusfl",
        description="Federated optimization that converges exactly, "
        "whatever clients show up.",
        epilog="example: focusfl demo",
    )
    parser.add_argument("--version", action="version", version=f"focusfl {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, call: Callable, help: str, example: str):
        sub = commands.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=f"example: {example}",
        )
        sub.set_defaults(command=call)
        sub.add_argument("--json", action="store_true", help="print JSON for machines")
        return sub

    demo = command(
        "demo", _demo, "show FOCUS exact where FedAvg is biased, in half a minute",
        "focusfl demo --out runs/demo",
    )  # fmt: skip
    run = command(
        "run", _run, "run the study in a TOML file",
        "focusfl run study.toml --set rounds=500 --set algorithms.fedavg.server_lr=0.5",
    )  # fmt: skip
    run.add_argument("study", type=Path, help="TOML file of the study")
    for sub in (demo, run):
        sub.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE",
            help="change one setting of the study; may be repeated",
        )  # fmt: skip
        sub.add_argument("--out", type=Path, help="folder for results (runs/NAME)")
    command(
        "list", _list, "list algorithms, participation models and problems",
        "focusfl list --json",
    )  # fmt: skip
    return parser


def _demo(options: argparse.Namespace) -> int:
    options.study = Path(__file__).parent / "experiment" / "demo.toml"
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from focusfl.experiment import config, study
    from focusfl.report import figure, page, table

    plan = config.load(options.study, options.set)
    folder = options.out or Path("runs") / plan.name
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out must be a folder; {folder} is a file.")
    total = len(plan.participation) * len(plan.algorithms) * plan.rounds
    with _progress(total) as watch:
        cells = list(study.run(plan, watch))
    drawing = figure.convergence(cells)
    problem = plan.source["problem"]
    lead = (
        f"{problem['kind']}, {plan.problem.num_clients} clients, "
        f"{plan.local_steps} local steps, {plan.rounds:,} rounds, seed {plan.seed}"
    )
    files = study.save(plan, cells, folder)
    files.append(study.write(folder / "figure.png", figure.render(drawing, "png")))
    html = page.page(
        plan.name, lead, cells, figure.render(drawing, "svg").decode(), plan.source,
        study.environment(),
    )  # fmt: skip
    files.append(study.write(folder / "index.html", html))
    if options.json:
        rows = [cell.row() for cell in cells]
        print(json.dumps({"cells": rows, "files": [str(f) for f in files]}, indent=2))
    else:
        _print_table(lead, table.HEADERS, table.lines(cells))
        print("written: " + "  ".join(str(f) for f in files))
    return 0


def _list(options: argparse.Namespace) -> int:
    import inspect

    from focusfl.algorithms import ALGORITHMS
    from focusfl.participation import PARTICIPATION
    from focusfl.problems import PROBLEMS

    def describe(kind: Callable) -> dict:
        parameters = inspect.signature(kind).parameters.values()
        return {
            "what": (inspect.getdoc(kind) or "").split("\n")[0],
            "options": {
                p.name: None if p.default is p.empty else p.default for p in parameters
            },
        }

    everything: dict[str, Mapping[str, Callable]] = {
        "algorithms": ALGORITHMS,
        "participation": PARTICIPATION,
        "problems": PROBLEMS,
    }
    found = {
        section: {name: describe(kind) for name, kind in kinds.items()}
        for section, kinds in everything.items()
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for section, kinds in found.items():
        rows = [
            (name, about["what"], ", ".join(about["options"]))
            for name, about in kinds.items()
        ]
        _print_table("", (section, "", "options"), rows)
    return 0


COLOURS = {"exact": "green", "biased": "yellow", "diverged": "red"}


def _print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]):
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
def _progress(total: int) -> Iterator[Callable]:
    """Show a live bar on a terminal, and a line per run elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:

        def lines(scene: str, name: str):
            print(f"running {scene} · {name}", file=sys.stderr)
            return lambda done, metrics: None

        yield lines
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} rounds"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("compiling", total=total)

        def watch(scene: str, name: str):
            before = bars.tasks[0].completed
            bars.update(task, description=f"{scene} · {name}")

            def update(done: int, metrics) -> None:
                error = metrics.get("distance")
                note = "" if error is None else f" · error {error:.0e}"
                bars.update(
                    task, completed=before + done, description=f"{scene} · {name}{note}"
                )

            return update

        yield watch


if __name__ == "__main__":
    sys.exit(main())

"""`focusfl merge`, `report`, `plot`, `compare` and `export`: parse, call, print."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from focusfl.cli.completion import offer
from focusfl.cli.options import folder, print_files, words
from focusfl.core.validation import printable

if TYPE_CHECKING:
    from focusfl.studies.store import Study

AXES = (
    "rounds", "vectors-sent", "gradient-evaluations", "seconds", "bytes-up",
    "step-size",
)  # fmt: skip


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands, by the function that adds any command."""
    merge = command(
        "merge", _merge, "put folders of one study with different seeds together",
        "focusfl merge runs/seed-* -o runs/all",
    )  # fmt: skip
    merge.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folder of a study")
    merge.add_argument(
        "-o", "--out", type=Path, required=True,
        help="folder to write to; runs of the same study that it has are kept",
    )  # fmt: skip
    report = command(
        "report", _report, "write one self-contained HTML page about studies",
        "focusfl report runs/demo -o report.html",
    )  # fmt: skip
    plot = command(
        "plot", _plot, "draw a publication figure: PDF, SVG or PNG",
        "focusfl plot runs/demo -o figure.pdf --x vectors-sent --relative",
    )  # fmt: skip
    compare = command(
        "compare", _compare, "say what got better or worse from one study to another",
        "focusfl compare runs/before runs/after",
    )  # fmt: skip
    export = command(
        "export", _export, "write curves or table as CSV, or the table as LaTeX",
        "focusfl export runs/demo -o table.tex",
    )  # fmt: skip
    for sub, default, help in [
        (report, "report.html", "the page (report.html)"),
        (plot, "figure.pdf", "the figure (figure.pdf)"),
    ]:
        sub.add_argument(
            "runs", type=Path, nargs="+", metavar="RUNS",
            help="folder of a study; those that differ in seeds alone are pooled",
        )  # fmt: skip
        sub.add_argument("-o", "--out", type=Path, default=Path(default), help=help)
    _plot_options(plot)
    compare.add_argument("before", type=Path, metavar="A", help="folder of a study")
    compare.add_argument("after", type=Path, metavar="B", help="folder of another")
    compare.add_argument("--all", action="store_true", help="show what stayed the same, too")
    export.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS",
        help="folder of a study; several, with different seeds, are pooled",
    )  # fmt: skip
    export.add_argument(
        "-o", "--out", type=Path, required=True, help="file, ending in .csv or .tex"
    )
    kind = export.add_argument("--what", help="curves or table (of .csv: curves; of .tex: table)")
    offer(kind, ("curves", "table"))
    export.add_argument(
        "--columns", type=words, default=[], metavar="A,B",
        help="only these columns, in this order: as a .csv names them, with error for "
        "median and quartiles and error_mean for mean and standard deviation",
    )  # fmt: skip


def _plot_options(plot: argparse.ArgumentParser) -> None:
    axis = plot.add_argument(
        "--x", default="rounds",
        help=f"{', '.join(AXES[:-1])} or {AXES[-1]} (rounds)",
    )  # fmt: skip
    offer(axis, AXES)
    plot.add_argument(
        "--y",
        help="distance, suboptimality, loss, grad-norm, accuracy (the first); by "
        "step-size: error, rounds-to-target, accuracy",
    )
    plot.add_argument("--relative", action="store_true", help="show it against the best curve")
    plot.add_argument(
        "--theory", action="store_true",
        help="add what theory predicts: rate, bias of the mean iterate, noise floor",
    )  # fmt: skip
    plot.add_argument(
        "--all-steps", action="store_true",
        help="draw every step size, not the best of each algorithm alone",
    )  # fmt: skip
    plot.add_argument("--reference", type=float, help="height of a line to compare to")
    for what in ("scenarios", "algorithms"):
        plot.add_argument(f"--{what}", type=words, metavar="A,B", help=f"only these {what}")
    plot.add_argument("--width", type=float, default=6.75, help="in inches (6.75)")


def _read_all(options: argparse.Namespace) -> "list[Study]":
    """Read all folders; pool those of one study, and say so."""
    from focusfl.studies.merge import by_study, pool
    from focusfl.studies.store import Study

    groups = by_study([Study.load(folder) for folder in options.runs])
    pooled = [pool(group) for group in groups]
    for group, study in zip(groups, pooled, strict=True):
        if len(group) > 1 and not options.json:
            names = ", ".join(str(each.folder) for each in group)
            print(printable(f"pooled: {names} ({_seeds(study)})"))
    return pooled


def _merge(options: argparse.Namespace) -> int:
    from focusfl.studies.merge import merge
    from focusfl.studies.report import output

    study = merge(options.runs, folder(options, ""))
    files = [str(file) for file in output.save_report(study)]
    if options.json:
        print(json.dumps({"runs": [run.row for run in study.runs], "files": files}, indent=2))
        return 0
    output.print_report(study)
    many = f"{len(options.runs)} folders, {len(study.runs)} runs"
    print(f"merged: {many}, {_seeds(study)}")
    print("written: " + "  ".join(files))
    return 0


def _seeds(study: "Study") -> str:
    seeds = dict.fromkeys(str(run.row["seed"]) for run in study.runs)
    return f"seeds {', '.join(seeds)}"


def _report(options: argparse.Namespace) -> int:
    from focusfl.studies.report.html import page

    return _write(options, page(_read_all(options)))


def _plot(options: argparse.Namespace) -> int:
    from focusfl.studies.report import figure, plots

    kind = options.out.suffix[1:].lower()
    if kind not in plots.KINDS:
        raise ValueError(f"--out must end in .pdf, .svg or .png; got {options.out}.")
    drawing = plots.plot(
        _read_all(options), options.x, options.y,
        relative=options.relative, theory=options.theory, reference=options.reference,
        scenarios=options.scenarios, algorithms=options.algorithms, width=options.width,
        all_steps=options.all_steps,
    )  # fmt: skip
    return _write(options, figure.render(drawing, kind))


def _compare(options: argparse.Namespace) -> int:
    from focusfl.studies.report import compare, terminal
    from focusfl.studies.store import Study

    comparison = compare.compare(Study.load(options.before), Study.load(options.after))
    changes = comparison.changes
    if options.json:
        print(json.dumps(compare.as_dict(comparison), indent=2))
        return 0
    for name, (before, after) in comparison.settings.items():
        print(f"{printable(name)}: {json.dumps(before)} in A, {json.dumps(after)} in B")
    for where, names in zip(("A", "B"), comparison.alone, strict=True):
        if names:
            print(printable(f"only in {where}: {', '.join(names)}"))
    moved = [change for change in changes if change.word != "same"]
    if shown := changes if options.all else moved:
        terminal.print_table("", compare.HEADERS, compare.lines(shown))
    same = len(changes) - len(moved)
    print(f"{same} of {len(changes)} numbers are the same within the spread")
    return 0


def _export(options: argparse.Namespace) -> int:
    from focusfl.studies.report.export import export
    from focusfl.studies.store import Study

    study = Study.load(*options.runs)
    return _write(options, export(study, options.out, options.what, options.columns))


def _write(options: argparse.Namespace, content: str | bytes) -> int:
    from focusfl.core import files

    print_files(options, [files.write(options.out, content)])
    return 0

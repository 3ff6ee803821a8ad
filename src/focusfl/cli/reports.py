"""`focusfl merge`, `report`, `plot`, `compare` and `export`: parse, call, print."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from focusfl.cli.options import Option, command, folder, print_files, words
from focusfl.core.validation import printable

if TYPE_CHECKING:
    from focusfl.studies.store import Study

AXES = (
    "rounds", "vectors-sent", "gradient-evaluations", "seconds", "bytes-up",
    "step-size",
)  # fmt: skip


def _runs(help: str) -> Option:
    return Option("runs", type=Path, nargs="+", metavar="RUNS", help=help)


POOLED = _runs("folder of a study; those that differ in seeds alone are pooled")


def _read_all(options: argparse.Namespace) -> "list[Study]":
    """Read all folders; pool those of one study, and say so."""
    from focusfl.studies.merge import by_study, pool
    from focusfl.studies.store import Study

    groups = by_study([Study.load(place) for place in options.runs])
    pooled = [pool(group) for group in groups]
    for group, study in zip(groups, pooled, strict=True):
        if len(group) > 1 and not options.json:
            names = ", ".join(str(each.folder) for each in group)
            print(printable(f"pooled: {names} ({_seeds(study)})"))
    return pooled


@command(
    "merge", "put folders of one study with different seeds together",
    "focusfl merge runs/seed-* -o runs/all",
    _runs("folder of a study"),
    Option("-o", "--out", type=Path, required=True,
           help="folder to write to; runs of the same study that it has are kept"),
)  # fmt: skip
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


@command(
    "report", "write one self-contained HTML page about studies",
    "focusfl report runs/demo -o report.html", POOLED,
    Option("-o", "--out", type=Path, default=Path("report.html"), help="the page (report.html)"),
)  # fmt: skip
def _report(options: argparse.Namespace) -> int:
    from focusfl.studies.report.html import page

    if options.out.suffix not in (".html", ".htm"):
        raise ValueError(
            f"--out of a report must end in .html; got {options.out}. For tables use "
            "`focusfl export`, for figures `focusfl plot`."
        )
    return _write(options, page(_read_all(options)))


@command(
    "plot", "draw a publication figure: PDF, SVG or PNG",
    "focusfl plot runs/demo -o figure.pdf --x vectors-sent --relative", POOLED,
    Option("-o", "--out", type=Path, default=Path("figure.pdf"), help="the figure (figure.pdf)"),
    Option("--x", default="rounds", words=AXES,
           help=f"{', '.join(AXES[:-1])} or {AXES[-1]} (rounds)"),
    Option("--y", help="distance, suboptimality, loss, grad-norm, accuracy (the first); by "
           "step-size: error, rounds-to-target, accuracy"),
    Option("--relative", action="store_true", help="show it against the best curve"),
    Option("--theory", action="store_true",
           help="add what theory predicts: rate, bias of the mean iterate, noise floor"),
    Option("--all-steps", action="store_true",
           help="draw every step size, not the best of each algorithm alone"),
    Option("--reference", type=float, help="height of a line to compare to"),
    Option("--scenarios", type=words, metavar="A,B", help="only these scenarios"),
    Option("--algorithms", type=words, metavar="A,B", help="only these algorithms"),
    Option("--width", type=float, default=6.75, help="in inches (6.75)"),
)  # fmt: skip
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


@command(
    "compare", "say what got better or worse from one study to another",
    "focusfl compare runs/before runs/after",
    Option("before", type=Path, metavar="A", help="folder of a study"),
    Option("after", type=Path, metavar="B", help="folder of another"),
    Option("--all", action="store_true", help="show what stayed the same, too"),
)  # fmt: skip
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


@command(
    "export", "write curves or table as CSV, or the table as LaTeX",
    "focusfl export runs/demo -o table.tex",
    _runs("folder of a study; several, with different seeds, are pooled"),
    Option("-o", "--out", type=Path, required=True, help="file, ending in .csv or .tex"),
    Option("--what", words=("curves", "table"),
           help="curves or table (of .csv: curves; of .tex: table)"),
    Option("--columns", type=words, default=[], metavar="A,B",
           help="only these columns, in this order: as a .csv names them, with error for "
           "median and quartiles and error_mean for mean and standard deviation"),
)  # fmt: skip
def _export(options: argparse.Namespace) -> int:
    from focusfl.studies.report.export import export
    from focusfl.studies.store import Study

    study = Study.load(*options.runs)
    return _write(options, export(study, options.out, options.what, options.columns))


def _write(options: argparse.Namespace, content: str | bytes) -> int:
    from focusfl.core import files

    print_files(options, [files.write(options.out, content)])
    return 0

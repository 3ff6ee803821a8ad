"""The command line: parse, call, print. Results to stdout, progress to stderr."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from focusfl import __version__
from focusfl.deploy import cli as deployment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from focusfl.experiment.config import Study
    from focusfl.experiment.study import Cell

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
        print("focusfl: interrupted; no file was left unfinished", file=sys.stderr)
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)  # at once: compilations cannot be stopped otherwise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="focusfl",
        description="Federated optimization that converges exactly, "
        "whatever clients show up.",
        epilog="example: focusfl demo",
    )
    parser.add_argument("--version", action="version", version=f"focusfl {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, call: Callable, help: str, example: str, among=commands):
        sub = among.add_parser(
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
    reproduce = command(
        "reproduce", _reproduce, "run an experiment of the paper again, done right",
        "focusfl reproduce ridge",
    )  # fmt: skip
    reproduce.add_argument(
        "experiment",
        help="ridge, ridge-public-code, quadratics, regimes, hospitals, survival or "
        "cifar10",
    )
    reproduce.add_argument(
        "--seeds", type=int,
        help="runs to average of hospitals and survival (10), or of cifar10 (1)",
    )  # fmt: skip
    images = reproduce.add_argument_group("of cifar10")
    images.add_argument("--rounds", type=int, help="10,000 by default")
    images.add_argument(
        "--participation", type=_words, metavar="A,B", help="bernoulli, markov or both"
    )
    images.add_argument(
        "--tune", action="store_true", help="run each at its own best step, too"
    )
    images.add_argument("--compute-dtype", metavar="DTYPE", help="such as bfloat16")
    theory = command(
        "theory", _theory, "print what theory predicts for the study in a TOML file",
        "focusfl theory study.toml --set lr=1e-4",
    )  # fmt: skip
    for sub in (run, theory):
        sub.add_argument("study", type=Path, help="TOML file of the study")
    for sub in (demo, run, reproduce, theory):
        sub.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE",
            help="change one setting of the study; may be repeated",
        )  # fmt: skip
    for sub in (demo, run, reproduce):
        sub.add_argument(
            "--algorithms", type=_words, default=[], metavar="A,B",
            help="run only these algorithms of the study",
        )  # fmt: skip
        sub.add_argument("--out", type=Path, help="folder for results (runs/NAME)")
    graph = command(
        "graph", _graph, "draw the graphs and matrices of one round",
        "focusfl graph --clients 4 --active 1,3",
    )  # fmt: skip
    graph.add_argument("--clients", type=int, required=True, help="how many there are")
    graph.add_argument(
        "--active",
        type=_words,
        default=[],
        metavar="I,J",
        help="who takes part, from 1",
    )
    graph.add_argument("--out", type=Path, help="PNG file (graph.png)")
    command(
        "list", _list, "list algorithms, participation models and problems",
        "focusfl list --json",
    )  # fmt: skip
    deploy = commands.add_parser(
        "deploy", help="run on Flower: processes, here or on several hosts",
        epilog="example: focusfl deploy local study.toml --clients 4 --tls",
    )  # fmt: skip
    deploys = deploy.add_subparsers(required=True, metavar="COMMAND")
    deployment.add(partial(command, among=deploys))
    return parser


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _demo(options: argparse.Namespace) -> int:
    from focusfl.experiment.config import STUDIES

    options.study = STUDIES / "demo.toml"
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from focusfl.experiment import config, study
    from focusfl.report import figure, table, terminal

    plan = config.load(options.study, options.set, options.algorithms)
    folder = _folder(options, plan.name)
    with terminal.progress(_total(plan)) as watch:
        cells = list(study.run(plan, watch))
    files = study.save(plan, cells, folder)
    files += _pages(plan, cells, folder, {"figure": figure.convergence(cells)})
    if options.json:
        _print_json(cells, files)
    else:
        terminal.print_table(_lead(plan), table.HEADERS, table.lines(cells))
        print("written: " + "  ".join(str(f) for f in files))
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    from focusfl.experiment import config, hospitals, reproduce, study
    from focusfl.report import figure, table, terminal

    if options.experiment == "cifar10":
        return _images(options)
    if options.experiment in hospitals.NAMES:
        _refuse(options, "rounds", "participation", "tune", "compute_dtype")
        return _hospitals(options)
    _refuse(options, "seeds", "rounds", "participation", "tune", "compute_dtype")
    if options.experiment == "regimes":
        return _regimes(options)
    study_file = reproduce.path(options.experiment)
    plan = config.load(study_file, options.set, options.algorithms)
    folder = _folder(options, f"reproduce-{plan.name}")
    with terminal.progress(_total(plan)) as watch:
        cells = list(study.run(plan, watch))
    with terminal.progress(len(reproduce.fair(plan)) * plan.rounds) as watch:
        best = list(reproduce.tuned(plan, watch))
    shown = [cell for cell in cells if cell.participation in reproduce.FIGURE]
    figures = {
        "figure": figure.convergence(shown),
        "tuned": figure.convergence(best, ("rounds", "vectors sent")),
    }
    matrix, tuned = table.matrix(cells), table.matrix(best)
    files = study.save(plan, cells, folder)
    text = table.markdown(*matrix) + "\n" + table.markdown(*tuned)
    files.append(study.write(folder / "table.md", text))
    files += _pages(plan, cells, folder, figures)
    if options.json:
        _print_json(cells, files, tuned=[cell.row() for cell in best])
    else:
        terminal.print_table(_lead(plan), *matrix)
        terminal.print_table("each at its own best step of a grid", *tuned)
        print("E(k): exact, at 1e-8 in round k. ∞: diverged. ↓: still falling.")
        print("written: " + "  ".join(str(f) for f in files))
    return 0


def _regimes(options: argparse.Namespace) -> int:
    """The theorem in its three regimes: a figure and its numbers."""
    from focusfl.experiment import study
    from focusfl.report import figure, regimes, terminal

    _refuse(options, "set", "algorithms")
    drawing, rows = regimes.regimes_figure()
    folder = _folder(options, "reproduce-regimes")
    file = study.write(folder / "figure.png", figure.render(drawing, "png"))
    if options.json:
        found = [row._asdict() for row in rows]
        print(json.dumps({"rows": found, "files": [str(file)]}, indent=2))
        return 0
    texts = [
        (row.regime, row.what, *(f"{value:.4g}" for value in row[2:])) for row in rows
    ]
    terminal.print_table("FOCUS, measured and predicted", regimes.Row._fields, texts)
    print(f"written: {file}")
    return 0


def _hospitals(options: argparse.Namespace) -> int:
    """Real hospitals, one of them rarely online: whom does the model serve?"""
    from focusfl.experiment import hospitals, study
    from focusfl.report import figure, terminal
    from focusfl.report import hospitals as report

    _refuse(options, "rounds", "participation", "tune", "compute_dtype")
    seeds = hospitals.SEEDS if options.seeds is None else options.seeds
    splits = hospitals.splits(
        options.experiment, options.set, options.algorithms, seeds
    )
    plan = splits[0].plan
    folder = _folder(options, f"reproduce-{plan.name}")
    with terminal.progress(seeds * _total(plan)) as watch:
        outcome = hospitals.serve(splits, watch)
    picture = figure.render(report.figure(outcome), "png")
    files = [
        *hospitals.save(outcome, folder),
        study.write(folder / "table.md", report.markdown(outcome)),
        study.write(folder / "figure.png", picture),
    ]
    if options.json:
        found = {"served": outcome.rows(), "files": [str(file) for file in files]}
        print(json.dumps(found, indent=2))
        return 0
    for table in report.tables(outcome):
        terminal.print_table(*table)
    print(report.KEY)
    print("written: " + "  ".join(str(f) for f in files))
    return 0


def _images(options: argparse.Namespace) -> int:
    """SG-FOCUS on CIFAR-10: curves, a table and who has which classes."""
    from focusfl.experiment import images, study
    from focusfl.report import figure, terminal
    from focusfl.report import images as report

    _refuse(options, "set")
    folder = _folder(options, "reproduce-cifar10")
    names = tuple(options.algorithms) or images.NAMES
    scenes = tuple(options.participation or images.SCENES[:1])
    rounds = images.ROUNDS if options.rounds is None else options.rounds
    seeds = 1 if options.seeds is None else options.seeds
    with terminal.progress(len(names) * len(scenes) * seeds * rounds) as watch:
        curves = list(
            images.reproduce(
                folder, algorithms=names, scenes=scenes, rounds=rounds, seeds=seeds,
                tune=options.tune, compute_dtype=options.compute_dtype, progress=watch,
            )
        )  # fmt: skip
    figures = {
        "accuracy": report.accuracy_figure(curves),
        "clients": report.bubble_figure(images.counts()),
    }
    files = [
        study.write(folder / f"{name}.png", figure.render(drawing, "png"))
        for name, drawing in figures.items()
    ]
    files.append(folder / "results.json")
    if options.json:
        found = [curve._asdict() | {"final": curve.final} for curve in curves]
        about = {"curves": found, "files": [str(file) for file in files]}
        print(json.dumps(about, indent=2))
        return 0
    title = f"CIFAR-10, {images.NUM_CLIENTS} clients, {rounds:,} rounds"
    terminal.print_table(title, report.HEADERS, report.lines(curves))
    print(report.KEY)
    print("written: " + "  ".join(str(f) for f in files))
    return 0


def _refuse(options: argparse.Namespace, *names: str) -> None:
    """Options that this experiment does not have must not be given."""
    for name in names:
        if getattr(options, name) not in (None, False, []):
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{options.experiment} has no {flag}; leave it out.")


def _theory(options: argparse.Namespace) -> int:
    from focusfl import theory
    from focusfl.experiment import config

    plan = config.load(options.study, options.set)
    if isinstance(plan.lr, str):
        raise ValueError(f"theory needs a number for lr; got {plan.lr!r}.")
    reports = {
        name: theory.report(
            plan.problem, scene.participation, lr=plan.lr, local_steps=plan.local_steps
        )
        for name, scene in plan.participation.items()
    }
    if options.json:
        found = {name: report.as_dict() for name, report in reports.items()}
        print(json.dumps(found, indent=2))
    else:
        print("\n\n".join(f"{name}: {report}" for name, report in reports.items()))
    return 0


def _graph(options: argparse.Namespace) -> int:
    from focusfl.experiment import study
    from focusfl.report import figure
    from focusfl.report.graph import mixing_figure

    try:
        active = [int(word) for word in options.active]
    except ValueError:
        raise ValueError(
            f"--active takes numbers between commas, as in 1,3; got {options.active}."
        ) from None
    picture = figure.render(mixing_figure(options.clients, active), "png")
    file = study.write(options.out or Path("graph.png"), picture)
    print(json.dumps({"files": [str(file)]}) if options.json else f"written: {file}")
    return 0


def _total(plan: "Study") -> int:
    return len(plan.participation) * len(plan.algorithms) * plan.rounds


def _folder(options: argparse.Namespace, name: str) -> Path:
    folder = options.out or Path("runs") / name
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out must be a folder; {folder} is a file.")
    return folder


def _lead(plan: "Study") -> str:
    """What was run, in a line."""
    return (
        f"{plan.source['problem']['kind']}, {plan.problem.num_clients} clients, "
        f"{plan.local_steps} local steps, {plan.rounds:,} rounds, seed {plan.seed}"
    )


def _pages(
    plan: "Study", cells: "list[Cell]", folder: Path, figures: "dict[str, Figure]"
) -> list[Path]:
    """Write figures as PNG, and all of them on one page."""
    from focusfl.experiment import study
    from focusfl.report import figure, page

    files = [
        study.write(folder / f"{name}.png", figure.render(drawing, "png"))
        for name, drawing in figures.items()
    ]
    pictures = [figure.render(drawing, "svg").decode() for drawing in figures.values()]
    html = page.page(
        plan.name, _lead(plan), cells, pictures, plan.source, study.environment()
    )
    return [*files, study.write(folder / "index.html", html)]


def _print_json(cells: "list[Cell]", files: list[Path], **more) -> None:
    rows = [cell.row() for cell in cells]
    out = {"cells": rows, **more, "files": [str(file) for file in files]}
    print(json.dumps(out, indent=2))


def _list(options: argparse.Namespace) -> int:
    import inspect

    from focusfl.algorithms import ALGORITHMS
    from focusfl.participation import PARTICIPATION
    from focusfl.problems import PROBLEMS
    from focusfl.report import terminal

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
        terminal.print_table("", (section, "", "options"), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

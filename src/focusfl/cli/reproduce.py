"""`focusfl reproduce`: the paper's experiments, run again."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from focusfl.cli.options import changes, folder, out, results, words
from focusfl.cli.studies import run_options, run_study
from focusfl.core.validation import check_count

if TYPE_CHECKING:
    from focusfl.studies.config import Study


STUDIES = {
    "ridge": "run the convergence figure as the paper's text has it",
    "ridge-public-code": "run the convergence figure as the public code has it",
    "quadratics": "run everything on well-conditioned quadratics",
}
TUNE_ROUNDS = 1_000
HOSPITALS = {
    "hospitals": "find out whom a model of four real hospitals serves",
    "survival": "find out whom a model of survival in six regions serves",
}


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands, one per experiment."""
    for name, what in STUDIES.items():
        sub = command(name, _study, what, f"focusfl reproduce {name}")
        changes(sub)
        results(sub)
    regimes = command(
        "regimes", _regimes, "draw Theorem 1 in its three regimes",
        "focusfl reproduce regimes",
    )  # fmt: skip
    out(regimes)
    for name, what in HOSPITALS.items():
        sub = command(name, _hospitals, what, f"focusfl reproduce {name} --seeds 3")
        sub.add_argument("--seeds", type=int, help="splits to average over (10)")
        changes(sub)
        results(sub)
    outside = command(
        "flamby", _flamby, "train FLamby's published tables anew, cell by cell",
        "focusfl reproduce flamby --tables heart",
    )  # fmt: skip
    outside.add_argument(
        "--tables", type=words, default=["heart", "tcga"], metavar="A,B",
        help="of heart (Fed-Heart-Disease) and tcga (Fed-TCGA-BRCA) only these",
    )  # fmt: skip
    outside.add_argument(
        "--rare", action="store_true",
        help="instead: all methods with the first hospital online 5 %% of the time",
    )  # fmt: skip
    out(outside)
    images = command(
        "cifar10", _images, "train SG-FOCUS and the others on CIFAR-10",
        "focusfl reproduce cifar10 --rounds 2000",
    )  # fmt: skip
    images.add_argument("--seeds", type=int, help="how many, side by side (3)")
    images.add_argument("--rounds", type=int, help="of every run (10,000)")
    images.add_argument(
        "--tune", action="store_true",
        help="find each algorithm's own step anew, over 1,000 rounds, and run that",
    )  # fmt: skip
    images.add_argument("--compute-dtype", metavar="DTYPE", help="such as bfloat16")
    changes(images)
    run_options(images)


def _study(options: argparse.Namespace) -> int:
    """A study of the paper: its table and figure, and each at its own best step."""
    from focusfl.core.files import write
    from focusfl.studies import config, reproduce, study
    from focusfl.studies.environment import environment
    from focusfl.studies.report import figure, table, terminal

    study_file = reproduce.path(options.name)
    plan = config.load(study_file, options.set, options.algorithms)
    place = folder(options, f"reproduce-{plan.name}")
    with terminal.progress(study.total_rounds(plan)) as watch:
        runs = list(study.run(plan, watch))
    with terminal.progress(len(reproduce.fair(plan)) * plan.rounds) as watch:
        best = list(reproduce.tuned(plan, watch))
    shown = [run for run in runs if run.row["participation"] in reproduce.FIGURE]
    figures = {
        "figure": lambda: figure.convergence(shown),
        "tuned": lambda: figure.convergence(best, ("rounds", "vectors sent")),
    }
    matrix, tuned = table.matrix(runs), table.matrix(best)
    found = {
        "runs": [run.row for run in runs],
        "tuned": [run.row for run in best],
    }
    about = {"study": plan.source, **found, "environment": environment()}
    text = table.markdown(*matrix) + "\n" + table.markdown(*tuned)
    files = [
        write(place / "results.json", json.dumps(about, indent=1)),
        write(place / "table.md", text),
        *figure.saved(place, figures),
    ]
    if options.json:
        print(json.dumps({**found, "files": [str(f) for f in files]}, indent=2))
    else:
        terminal.print_table(_lead(plan), *matrix)
        terminal.print_table("each at its own best step of a grid", *tuned)
        print(table.KEY)
        print("written: " + "  ".join(str(f) for f in files))
    return 0


def _lead(plan: "Study") -> str:
    """What was run, in a line."""
    return (
        f"{plan.source['problem']['kind']}, {plan.problem.num_clients} clients, "
        f"{plan.rounds:,} rounds, seed {plan.seeds[0]}"
    )


def _regimes(options: argparse.Namespace) -> int:
    """The theorem in its three regimes: a figure and its numbers."""
    from focusfl.core.files import write
    from focusfl.studies import regimes
    from focusfl.studies.report import figure, terminal
    from focusfl.studies.report.regimes import regimes_figure

    found = regimes.regimes()
    rows = [row for panel in found for row in panel.rows]
    place = folder(options, "reproduce-regimes")
    told = json.dumps([row._asdict() for row in rows], indent=1)
    files = [
        write(place / "results.json", told),
        *figure.saved(place, {"figure": lambda: regimes_figure(found)}),
    ]
    if options.json:
        about = {"rows": json.loads(told), "files": [str(file) for file in files]}
        print(json.dumps(about, indent=2))
        return 0
    texts = [(row.regime, row.what, *(f"{value:.4g}" for value in row[2:])) for row in rows]
    terminal.print_table("FOCUS, measured and predicted", regimes.Row._fields, texts)
    print("written: " + "  ".join(str(f) for f in files))
    return 0


def _hospitals(options: argparse.Namespace) -> int:
    """Real hospitals, one of them rarely online: whom does the model serve?"""
    from focusfl.core.files import write
    from focusfl.studies import hospitals, study
    from focusfl.studies.report import figure, terminal
    from focusfl.studies.report import hospitals as report

    seeds = hospitals.SEEDS if options.seeds is None else options.seeds
    splits = hospitals.splits(options.name, options.set, options.algorithms, seeds)
    plan = splits[0].plan
    place = folder(options, f"reproduce-{plan.name}")
    with terminal.progress(seeds * study.total_rounds(plan)) as watch:
        outcome = hospitals.serve(splits, watch)
    files = [
        *hospitals.save(outcome, place),
        write(place / "table.md", report.markdown(outcome)),
        *figure.saved(place, {"figure": lambda: report.figure(outcome)}),
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


def _flamby(options: argparse.Namespace) -> int:
    """FLamby's tables: what was published, what comes out, and the difference."""
    from focusfl.core.files import write
    from focusfl.studies.environment import environment
    from focusfl.studies.flamby.cells import Cell, cells
    from focusfl.studies.report import flamby, terminal

    place = folder(options, "reproduce-flamby")
    if options.rare:
        return _rare(options, place)
    found: list[Cell] = []
    for cell in cells(options.tables, place):
        if not found or cell[:2] != found[-1][:2]:
            terminal.say(f"{cell.federation}, seed {cell.seed}: trained")
        found.append(cell)
    files = [
        write(place / "results.csv", flamby.tidy(found)),
        write(place / "manifest.json", json.dumps(environment(), indent=2)),
        write(place / "table.md", flamby.markdown(found)),
    ]
    if options.json:
        rows = [{**cell._asdict(), "equal": cell.equal, "within": cell.within} for cell in found]
        print(json.dumps({"cells": rows, "files": [str(f) for f in files]}, indent=2))
        return 0
    for table in (*flamby.tables(found), flamby.outside(found)):
        terminal.print_table(*table)
    print(flamby.KEY)
    print("written: " + "  ".join(str(f) for f in files))
    return 0


def _rare(options: argparse.Namespace, place: Path) -> int:
    """The same methods and FOCUS, with one hospital rarely online."""
    from focusfl.core.files import write
    from focusfl.studies.flamby.rare import Line, lines
    from focusfl.studies.report import flamby, table, terminal

    found: list[Line] = []
    for line in lines(options.tables, place):
        terminal.say(f"{line.federation}, {line.method}: trained")
        found.append(line)
    shown = flamby.rare(found)
    text = f"{shown.title}\n\n{table.markdown(shown.headers, shown.rows)}"
    file = write(place / "rare.md", text)
    if options.json:
        rows = [line._asdict() for line in found]
        print(json.dumps({"lines": rows, "files": [str(file)]}, indent=2))
        return 0
    terminal.print_table(*shown)
    print(f"written: {file}")
    return 0


def _images(options: argparse.Namespace) -> int:
    """SG-FOCUS on CIFAR-10: a study that these options change."""
    from focusfl.studies import reproduce

    options.study = reproduce.path(options.name)
    options.participation = options.participation or ["bernoulli"]
    options.out = folder(options, "reproduce-cifar10")
    own = [*_rounds("--rounds", options.rounds)]
    if options.seeds is not None:
        check_count("--seeds", options.seeds)
        own.append(f"seeds={[66 + k for k in range(options.seeds)]}")
    if options.compute_dtype is not None:
        own.append(f"problem.compute_dtype={options.compute_dtype}")
    if options.tune:
        own += _tuned(options, own)
    options.set = [*own, *options.set]
    return run_study(options)


def _rounds(name: str, rounds: int | None) -> list[str]:
    """Changes of a study: so many rounds, evaluated five times at least."""
    if rounds is None:
        return []
    check_count(name, rounds)
    return [f"rounds={rounds}", f"eval_eval_every={min(100, max(1, rounds // 5))}"]


def _tuned(options: argparse.Namespace, own: list[str]) -> list[str]:
    """Changes of the study: each algorithm at the paper's step and at its own."""
    from focusfl.studies import config
    from focusfl.studies.report import terminal
    from focusfl.studies.tune import tune

    short = min(TUNE_ROUNDS, options.rounds or TUNE_ROUNDS)
    wanted = [*own, *_rounds("--rounds", short), *options.set]
    plan = config.load(options.study, wanted, options.algorithms, options.participation)
    found: dict[str, list[float]] = {}
    with terminal.study_progress(plan, []) as (watch, _):
        for one in tune(plan, options.out / "tuning", watch):
            paper = plan.step_sizes(one.participation, one.algorithm)[0]
            lrs = found.setdefault(one.algorithm, [float(paper)])
            lrs += [one.lr] * (one.lr not in lrs)
    return [f"algorithms.{name}.lr={lrs}" for name, lrs in found.items()]

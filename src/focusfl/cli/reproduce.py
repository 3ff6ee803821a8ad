"""`focusfl reproduce`: the paper's experiments, run again."""

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from focusfl.cli.options import changes, folder, out, results, words

if TYPE_CHECKING:
    from focusfl.experiment.config import Study


STUDIES = {
    "ridge": "run the convergence figure as the paper's text has it",
    "ridge-public-code": "run the convergence figure as the public code has it",
    "quadratics": "run everything on well-conditioned quadratics",
}
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
    images = command(
        "cifar10", _images, "train SG-FOCUS and the others on CIFAR-10",
        "focusfl reproduce cifar10 --rounds 2000",
    )  # fmt: skip
    images.add_argument("--seeds", type=int, help="runs to average over (1)")
    images.add_argument("--rounds", type=int, help="of every run (10,000)")
    images.add_argument(
        "--participation", type=words, metavar="A,B", help="bernoulli, markov or both"
    )
    images.add_argument(
        "--tune", action="store_true", help="run each at its own best step, too"
    )
    images.add_argument("--compute-dtype", metavar="DTYPE", help="such as bfloat16")
    results(images)


def _study(options: argparse.Namespace) -> int:
    """A study of the paper: its table and figure, and each at its own best step."""
    from focusfl.experiment import config, reproduce, study
    from focusfl.experiment.environment import environment
    from focusfl.files import write
    from focusfl.report import figure, table, terminal

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
    from focusfl.experiment import regimes
    from focusfl.files import write
    from focusfl.report import figure, terminal
    from focusfl.report.regimes import regimes_figure

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
    texts = [
        (row.regime, row.what, *(f"{value:.4g}" for value in row[2:])) for row in rows
    ]
    terminal.print_table("FOCUS, measured and predicted", regimes.Row._fields, texts)
    print("written: " + "  ".join(str(f) for f in files))
    return 0


def _hospitals(options: argparse.Namespace) -> int:
    """Real hospitals, one of them rarely online: whom does the model serve?"""
    from focusfl.experiment import hospitals, study
    from focusfl.files import write
    from focusfl.report import figure, terminal
    from focusfl.report import hospitals as report

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


def _images(options: argparse.Namespace) -> int:
    """SG-FOCUS on CIFAR-10: curves, a table and who has which classes."""
    from focusfl.experiment import images
    from focusfl.report import figure, terminal
    from focusfl.report import images as report

    place = folder(options, "reproduce-cifar10")
    names = tuple(options.algorithms) or images.NAMES
    scenarios = tuple(options.participation or images.SCENARIOS[:1])
    rounds = images.ROUNDS if options.rounds is None else options.rounds
    seeds = 1 if options.seeds is None else options.seeds
    with terminal.progress(len(names) * len(scenarios) * seeds * rounds) as watch:
        plan = images.Plan(
            names, scenarios, rounds, seeds, options.tune, options.compute_dtype
        )
        curves = list(images.reproduce(place, plan, watch))
    figures = {
        "accuracy": lambda: report.accuracy_figure(curves),
        "clients": lambda: report.bubble_figure(images.counts()),
    }
    files = [*figure.saved(place, figures), place / "results.json"]
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

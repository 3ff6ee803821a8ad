"""`focusfl reproduce`: the paper's experiments, run again."""

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from focusfl.cli.options import changes, folder, results, words

if TYPE_CHECKING:
    from focusfl.experiment.config import Study


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command."""
    sub = command(
        "reproduce", _reproduce, "run an experiment of the paper again, done right",
        "focusfl reproduce ridge",
    )  # fmt: skip
    sub.add_argument(
        "experiment",
        help="ridge, ridge-public-code, quadratics, regimes, hospitals, survival or "
        "cifar10",
    )
    sub.add_argument(
        "--seeds", type=int,
        help="runs to average of hospitals and survival (10), or of cifar10 (1)",
    )  # fmt: skip
    images = sub.add_argument_group("of cifar10")
    images.add_argument("--rounds", type=int, help="10,000 by default")
    images.add_argument(
        "--participation", type=words, metavar="A,B", help="bernoulli, markov or both"
    )
    images.add_argument(
        "--tune", action="store_true", help="run each at its own best step, too"
    )
    images.add_argument("--compute-dtype", metavar="DTYPE", help="such as bfloat16")
    changes(sub)
    results(sub)


def _reproduce(options: argparse.Namespace) -> int:
    from focusfl.experiment import config, hospitals, reproduce, study
    from focusfl.experiment.files import environment, write
    from focusfl.report import figure, table, terminal

    if options.experiment == "cifar10":
        return _images(options)
    if options.experiment in hospitals.NAMES:
        return _hospitals(options)
    _refuse(options, "seeds", "rounds", "participation", "tune", "compute_dtype")
    if options.experiment == "regimes":
        return _regimes(options)
    study_file = reproduce.path(options.experiment)
    plan = config.load(study_file, options.set, options.algorithms)
    place = folder(options, f"reproduce-{plan.name}")
    with terminal.progress(study.total_rounds(plan)) as watch:
        cells = list(study.run(plan, watch))
    with terminal.progress(len(reproduce.fair(plan)) * plan.rounds) as watch:
        best = list(reproduce.tuned(plan, watch))
    shown = [cell for cell in cells if cell.participation in reproduce.FIGURE]
    figures = {
        "figure": lambda: figure.convergence(shown),
        "tuned": lambda: figure.convergence(best, ("rounds", "vectors sent")),
    }
    matrix, tuned = table.matrix(cells), table.matrix(best)
    found = {
        "cells": [cell.run().row for cell in cells],
        "tuned": [cell.run().row for cell in best],
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
    from focusfl.experiment.files import write
    from focusfl.report import figure, regimes, terminal

    _refuse(options, "set", "algorithms")
    found = regimes.regimes()
    rows = [row for panel in found for row in panel.rows]
    place = folder(options, "reproduce-regimes")
    told = json.dumps([row._asdict() for row in rows], indent=1)
    files = [
        write(place / "results.json", told),
        *figure.saved(place, {"figure": lambda: regimes.regimes_figure(found)}),
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
    from focusfl.experiment.files import write
    from focusfl.report import figure, terminal
    from focusfl.report import hospitals as report

    _refuse(options, "rounds", "participation", "tune", "compute_dtype")
    seeds = hospitals.SEEDS if options.seeds is None else options.seeds
    splits = hospitals.splits(
        options.experiment, options.set, options.algorithms, seeds
    )
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

    _refuse(options, "set")
    place = folder(options, "reproduce-cifar10")
    names = tuple(options.algorithms) or images.NAMES
    scenes = tuple(options.participation or images.SCENES[:1])
    rounds = images.ROUNDS if options.rounds is None else options.rounds
    seeds = 1 if options.seeds is None else options.seeds
    with terminal.progress(len(names) * len(scenes) * seeds * rounds) as watch:
        curves = list(
            images.reproduce(
                place, algorithms=names, scenes=scenes, rounds=rounds, seeds=seeds,
                tune=options.tune, compute_dtype=options.compute_dtype, progress=watch,
            )
        )  # fmt: skip
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


def _refuse(options: argparse.Namespace, *names: str) -> None:
    """Options that this experiment does not have must not be given."""
    for name in names:
        if getattr(options, name) not in (None, False, []):
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{options.experiment} has no {flag}; leave it out.")

"""Studies on the command line: begin one, run it, ask theory about it."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focusfl.cli.options import changes, folder, results, scenarios, words

if TYPE_CHECKING:
    from focusfl.studies.spec import StudySpec


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands."""
    demo = command(
        "demo", _demo, "show FOCUS exact where FedAvg is biased, in half a minute",
        "focusfl demo --out runs/demo",
    )  # fmt: skip
    run = command(
        "run", run_study, "run the study in a TOML file",
        "focusfl run study.toml --set rounds=500 --set seeds=5",
    )  # fmt: skip
    theory = command(
        "theory", _theory, "print what theory predicts for the study in a TOML file",
        "focusfl theory study.toml --set lr=1e-4",
    )  # fmt: skip
    for sub in (run, theory):
        sub.add_argument("study", type=Path, help="TOML file of the study")
    for sub in (demo, run, theory):
        changes(sub)
    for sub in (demo, run):
        run_options(sub)
    command(
        "schema", _schema, "print the JSON schema of a study, for editors",
        "focusfl schema > study.schema.json",
    )  # fmt: skip
    graph = command(
        "graph", _graph, "draw the graphs and matrices of one round",
        "focusfl graph --clients 4 --active 1,3",
    )  # fmt: skip
    graph.add_argument("--clients", type=int, required=True, help="how many there are")
    graph.add_argument(
        "--active", type=words, default=[], metavar="I,J", help="who takes part, from 1"
    )
    graph.add_argument("-o", "--out", type=Path, help="PNG file (graph.png)")
    command(
        "list", _list,
        "list algorithms, participation models, problems, schedules and compressors",
        "focusfl list --json",
    )  # fmt: skip


def run_options(sub: argparse.ArgumentParser) -> None:
    """Choose what of a study is run, how, and where it is kept."""
    results(sub)
    scenarios(sub)
    which = sub.add_mutually_exclusive_group()
    which.add_argument(
        "--resume", action="store_true",
        help="go on with a study that was interrupted; fail if there is none",
    )  # fmt: skip
    which.add_argument(
        "--fresh", action="store_true",
        help="run everything again, even what is finished in the folder",
    )  # fmt: skip
    sub.add_argument(
        "--workers", type=int, metavar="N",
        help="run in so many processes (in threads of this one)",
    )  # fmt: skip
    sub.add_argument(
        "--devices", type=int, metavar="N",
        help="spread clients over so many devices (as the study says, or one)",
    )  # fmt: skip
    sub.add_argument(
        "--track", action="append", default=[], metavar="TRACKER[=WHERE]",
        help="tell tensorboard, mlflow or wandb of every run, also of those that had "
        "ended before",
    )  # fmt: skip
    sub.add_argument("--quiet", action="store_true", help="show no progress and no table")


def _demo(options: argparse.Namespace) -> int:
    from focusfl.studies.spec import STUDIES

    options.study = STUDIES / "demo.toml"
    return run_study(options)


def run_study(options: argparse.Namespace) -> int:
    """Run what is left of a study in its folder, and show what is there."""
    from focusfl.studies import spec
    from focusfl.studies.report import output, terminal
    from focusfl.studies.runner import Store, run_in_folder

    if options.workers is not None and options.workers < 1:
        raise ValueError(
            f"--workers must be a whole number of at least 1; got {options.workers}. "
            "Leave it out to run in threads of this process."
        )
    if options.devices is not None:
        options.set.append(f"devices={options.devices}")
    plan = spec.load(options.study, options.set, options.algorithms, options.participation)
    if plan.devices:  # before a folder is made and anything begins to run
        from focusfl.simulation.devices import devices_for
        from focusfl.simulation.spec import Checkpoint, Options

        kept = Checkpoint("runs") if plan.checkpoint_every else None
        chosen = Options(checkpoint=kept, client_state=plan.client_state, devices=plan.devices)
        devices_for(chosen, plan.problem.num_clients)
    trackers = _trackers(options.track)
    place = folder(options, plan.name)
    left = Store(place, plan, fresh=options.fresh).left()
    if options.resume and not (place / "runs").is_dir():
        raise ValueError(f"there is nothing to resume in {place}; leave --resume out.")
    told: set[str] = set()  # keys of runs that trackers know
    watched = terminal.silence if options.quiet else terminal.study_progress
    with ExitStack() as open_, watched(plan, left) as (watch, ended):
        for track in trackers:
            open_.enter_context(track)

        def tell(runs):
            for run in runs:
                for track in trackers:
                    track(run)

        def finished(runs):
            ended(runs)
            tell(runs)
            told.update(run.row["key"] for run in runs)

        try:
            found = run_in_folder(plan, place, watch, finished, options.workers or 0, options.fresh)
        except KeyboardInterrupt:
            _say_what_is_kept(place, plan)
            raise
        tell(earlier := [run for run in found.runs if run.row["key"] not in told])
    files = output.save_report(found)
    if options.json:
        rows = [run.row for run in found.runs]
        print(json.dumps({"runs": rows, "files": [str(f) for f in files]}, indent=2))
    elif not options.quiet:
        output.print_report(found)
        if not left:
            print("nothing was left to run; --fresh runs everything again.")
        if trackers:
            many = f"tracked: {len(found.runs)} runs"
            print(f"{many}, {len(earlier)} of which had ended before")
        print("written: " + "  ".join(str(f) for f in files))
    return 0


def _say_what_is_kept(place: Path, plan: "StudySpec") -> None:
    """How much of an interrupted study need not be run again."""
    from focusfl.studies.runner import Store, run_groups

    def count(what):
        return sum(len(group.lrs) * len(group.seeds) for group in what)

    runs, left = count(run_groups(plan)), count(Store(place, plan).left())
    print(
        f"{runs - left} of {runs} runs have ended and are kept in {place}; "
        "the same command with --resume runs the rest",
        file=sys.stderr,
    )


def _trackers(specs: list[str]) -> list[Any]:
    if not specs:
        return []
    from focusfl.studies.tracking import tracker

    return [tracker(spec) for spec in specs]


def _theory(options: argparse.Namespace) -> int:
    from focusfl import theory
    from focusfl.studies import spec

    plan = spec.load(options.study, options.set)
    if len(plan.lrs) > 1 or len(plan.local_steps) > 1 or plan.lrs == ("auto",):
        raise ValueError(
            f"theory needs one number for lr and one for local_steps; got {plan.lrs} "
            f"and {plan.local_steps}. Choose with --set."
        )
    if plan.schedule:
        raise ValueError("theory is of one lr for all rounds; leave [schedule] out.")
    (lr,), (local_steps,) = plan.lrs, plan.local_steps
    reports = {
        name: theory.report(
            plan.problem, scenario.participation, lr=float(lr), local_steps=local_steps
        )
        for name, scenario in plan.participation.items()
    }
    if options.json:
        found = {name: report.as_dict() for name, report in reports.items()}
        print(json.dumps(found, indent=2))
    else:
        print("\n\n".join(f"{name}: {report}" for name, report in reports.items()))
    return 0


def _schema(options: argparse.Namespace) -> int:
    from focusfl.studies.json_schema import json_schema

    del options
    print(json.dumps(json_schema(), indent=2))
    return 0


def _graph(options: argparse.Namespace) -> int:
    from focusfl.core import files
    from focusfl.studies.report import figure
    from focusfl.studies.report.graph import mixing_figure

    try:
        active = [int(word) for word in options.active]
    except ValueError:
        raise ValueError(
            f"--active takes numbers between commas, as in 1,3; got {options.active}."
        ) from None
    picture = figure.render(mixing_figure(options.clients, active), "png")
    file = files.write(options.out or Path("graph.png"), picture)
    print(json.dumps({"files": [str(file)]}) if options.json else f"written: {file}")
    return 0


def _list(options: argparse.Namespace) -> int:
    import inspect

    from focusfl.algorithms import ALGORITHMS
    from focusfl.compression import COMPRESSORS
    from focusfl.core.schedules import SCHEDULES
    from focusfl.participation import PARTICIPATION
    from focusfl.problems import PROBLEMS
    from focusfl.studies.report import terminal

    def describe(section: str, kind: Callable) -> dict:
        parameters = inspect.signature(kind).parameters.values()
        return {
            "what": (inspect.getdoc(kind) or "").split("\n")[0],
            "options": {
                p.name: None if p.default is p.empty else p.default
                for p in parameters
                if section != "schedules" or p.name != "lr"  # which the study says
            },
        }

    everything: dict[str, Mapping[str, Callable]] = {
        "algorithms": ALGORITHMS,
        "participation": PARTICIPATION,
        "problems": PROBLEMS,
        "schedules": SCHEDULES,
        "compressors": COMPRESSORS,
    }
    found = {
        section: {name: describe(section, kind) for name, kind in kinds.items()}
        for section, kinds in everything.items()
    }
    if options.json:
        print(json.dumps(found, indent=2, default=repr))
        return 0
    for section, kinds in found.items():
        rows = [(name, about["what"], ", ".join(about["options"])) for name, about in kinds.items()]
        title = section + " (compression)" * (section == "compressors")
        terminal.print_table("", (title, "", "options"), rows)
    terminal.print_text("Data sets: focusfl data list.")
    return 0

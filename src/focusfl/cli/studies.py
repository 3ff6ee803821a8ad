"""Studies on the command line: run, tune and verify one, and ask theory about it."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from focusfl.cli.options import (
    CHANGES,
    OUT,
    STUDY,
    WHICH_ALGORITHMS,
    WHICH_PARTICIPATION,
    Option,
    command,
    folder,
    print_files,
    words,
)
from focusfl.core.validation import printable

if TYPE_CHECKING:
    from focusfl.studies.runner import RunGroup

EXIT_DAMAGED = 1
REPRODUCED = {  # studies that ship with the package, which `focusfl reproduce` runs
    "ridge": "run the convergence figure as the paper's text has it",
    "ridge-public-code": "run the convergence figure as the public code has it",
    "quadratics": "run everything on well-conditioned quadratics",
    "cifar10": "train SG-FOCUS and the others on CIFAR-10, which takes a GPU",
    "hospitals": "train on four real hospitals, one of them rarely online",
    "survival": "train a model of survival in six regions, one of them rarely online",
}


RUN = (  # what of a study is run, how, and where its results go
    CHANGES, WHICH_ALGORITHMS, WHICH_PARTICIPATION, OUT,
    Option("--resume", action="store_true", excludes="--fresh",
           help="go on with a study that was interrupted; fail if there is none"),
    Option("--fresh", action="store_true", excludes="--fresh",
           help="run everything again, even what is finished in the folder"),
    Option("--workers", type=int, metavar="N",
           help="run in so many processes (in threads of this one)"),
    Option("--devices", type=int, metavar="N",
           help="spread clients over so many devices (as the study says, or one)"),
    Option("--track", action="append", default=[], metavar="TRACKER[=WHERE]",
           help="tell tensorboard, mlflow or wandb of every run, also of those that had "
           "ended before"),
    Option("--quiet", action="store_true", help="show no progress and no table"),
)  # fmt: skip


@command(
    "demo", "show FOCUS exact where FedAvg is biased, in half a minute",
    "focusfl demo --out runs/demo", *RUN,
)  # fmt: skip
def _demo(options: argparse.Namespace) -> int:
    from focusfl.studies.spec import STUDIES

    options.study = STUDIES / "demo.toml"
    return _run(options)


def _reproduce(options: argparse.Namespace) -> int:
    from focusfl.studies.spec import STUDIES

    options.study = STUDIES / f"{options.name}.toml"
    options.out = folder(options, f"reproduce-{options.name}")
    return _run(options)


for name, what in REPRODUCED.items():
    command(f"reproduce {name}", what, f"focusfl reproduce {name}", *RUN)(_reproduce)


@command(
    "run", "run the study in a TOML file",
    "focusfl run study.toml --set rounds=500 --set seeds=5", STUDY, *RUN,
)  # fmt: skip
def _run(options: argparse.Namespace) -> int:
    """Run what is left of a study in its folder, and show what is there."""
    from focusfl.studies import spec
    from focusfl.studies.report import output, terminal
    from focusfl.studies.runner import Store, run_groups, run_in_folder

    if options.workers is not None and options.workers < 1:
        raise ValueError(
            f"--workers must be a whole number of at least 1; got {options.workers}. "
            "Leave it out to run in threads of this process."
        )
    changes = list(options.set)
    if options.devices is not None:
        changes.append(f"devices={options.devices}")
    plan = spec.load(options.study, changes, options.algorithms, options.participation)
    if plan.devices:  # before a folder is made and anything begins to run
        from focusfl.simulation.devices import devices_for
        from focusfl.simulation.spec import Checkpoint, Options

        checkpoint = Checkpoint("runs") if plan.checkpoint_every else None
        engine = Options(
            checkpoint=checkpoint, client_state=plan.client_state, devices=plan.devices
        )  # fmt: skip
        devices_for(engine, plan.problem.num_clients)
    trackers = []
    if options.track:
        from focusfl.studies.tracking import tracker

        trackers = [tracker(spec) for spec in options.track]
    place = folder(options, plan.name)
    left = Store(place, plan, fresh=options.fresh).left()
    if options.resume and not (place / "runs").is_dir():
        raise ValueError(f"there is nothing to resume in {place}; leave --resume out.")
    tracked: set[str] = set()  # keys of runs
    with ExitStack() as stack:
        watch = print_end = None
        if not options.quiet:
            watch, print_end = stack.enter_context(terminal.study_progress(plan, left))
        for track in trackers:
            stack.enter_context(track)

        def track_all(runs):
            for run in runs:
                for track in trackers:
                    track(run)

        def finished(runs):
            if print_end:
                print_end(runs)
            track_all(runs)
            tracked.update(run.row["key"] for run in runs)

        try:
            study = run_in_folder(plan, place, watch, finished, options.workers or 0, options.fresh)
        except KeyboardInterrupt:
            runs = _count(run_groups(plan))
            ended = runs - _count(Store(place, plan).left())
            print(
                f"{ended} of {runs} runs have ended and are kept in {place}; "
                "the same command with --resume runs the rest",
                file=sys.stderr,
            )
            raise
        earlier = [run for run in study.runs if run.row["key"] not in tracked]
        track_all(earlier)
    files = [str(file) for file in output.save_report(study)]
    if options.json:
        print(json.dumps({"runs": [run.row for run in study.runs], "files": files}, indent=2))
    elif not options.quiet:
        output.print_report(study)
        if not left:
            print("nothing was left to run; --fresh runs everything again.")
        if trackers:
            print(f"tracked: {len(study.runs)} runs, {len(earlier)} of which had ended before")
        print("written: " + "  ".join(files))
    return 0


def _count(groups: "Iterable[RunGroup]") -> int:
    return sum(len(group.runs) for group in groups)


@command(
    "tune", "find the best step size of every algorithm of a study",
    "focusfl tune study.toml --set rounds=200",
    STUDY, CHANGES, WHICH_ALGORITHMS, WHICH_PARTICIPATION, OUT,
)  # fmt: skip
def _tune(options: argparse.Namespace) -> int:
    """Print the best step sizes, and what to write into a study."""
    from focusfl.studies import spec
    from focusfl.studies.report import terminal
    from focusfl.studies.report.columns import short
    from focusfl.studies.report.names import label
    from focusfl.studies.tuning import tune

    plan = spec.load(options.study, options.set, options.algorithms, options.participation)
    place = folder(options, f"{plan.name}-tuning")
    with terminal.study_progress(plan, []) as (watch, _):
        tuned = list(tune(plan, place, watch))
    if options.json:
        print(json.dumps([best._asdict() for best in tuned], indent=2))
        return 0
    rows = [
        (best.participation, label(best.algorithm), str(best.local_steps), short(best.lr),
         f"{short(best.tried[0])} to {short(best.tried[-1])}")
        for best in tuned
    ]  # fmt: skip
    title = f"best step sizes after {plan.rounds:,} rounds"
    heads = ("participation", "algorithm", "local steps", "lr", "tried")
    terminal.print_table(title, heads, rows)
    for name in dict.fromkeys(best.algorithm for best in tuned):
        lrs = list(dict.fromkeys(best.lr for best in tuned if best.algorithm == name))
        print(f"--set algorithms.{name}.lr={lrs if len(lrs) > 1 else lrs[0]}")
    return 0


@command(
    "verify", "say which files of a folder are damaged, by their checksums",
    "focusfl verify runs/demo",
    Option("folder", type=Path, metavar="DIR",
           help="of a study, a checkpoint, the suite, a deployment's server or site"),
)  # fmt: skip
def _verify(options: argparse.Namespace) -> int:
    from focusfl.studies.verify import verify

    findings = verify(options.folder)
    count = Counter(finding.state for finding in findings)
    totals = {state: count[state] for state in ("ok", "damaged", "unknown")}
    if options.json:
        print(json.dumps({**totals, "files": [each._asdict() for each in findings]}, indent=2))
    else:
        for file, state, why in findings:
            print(f"{state:8}{printable(file + f': {why}' * bool(why))}")
        print(", ".join(f"{many} {state}" for state, many in totals.items()))
    return EXIT_DAMAGED if count["damaged"] else 0


@command(
    "theory", "print what theory predicts for the study in a TOML file",
    "focusfl theory study.toml --set lr=1e-4", STUDY, CHANGES,
)  # fmt: skip
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
        answer = {name: report.as_dict() for name, report in reports.items()}
        print(json.dumps(answer, indent=2))
    else:
        print("\n\n".join(f"{name}: {report}" for name, report in reports.items()))
    return 0


@command(
    "schema", "print the JSON schema of a study, for editors",
    "focusfl schema > study.schema.json",
)  # fmt: skip
def _schema(options: argparse.Namespace) -> int:
    from focusfl.studies.schema import json_schema

    del options
    print(json.dumps(json_schema(), indent=2))
    return 0


@command(
    "graph", "draw the graphs and matrices of one round",
    "focusfl graph --clients 4 --active 1,3",
    Option("--clients", type=int, required=True, help="how many there are"),
    Option("--active", type=words, default=[], metavar="I,J", help="who takes part, from 1"),
    Option("-o", "--out", type=Path, help="PNG file (graph.png)"),
)  # fmt: skip
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
    print_files(options, [files.write(options.out or Path("graph.png"), picture)])
    return 0


@command(
    "list", "list algorithms, participation models, problems, schedules and compressors",
    "focusfl list --json",
)  # fmt: skip
def _list(options: argparse.Namespace) -> int:
    import inspect

    from focusfl.algorithms import ALGORITHMS
    from focusfl.compression import COMPRESSORS
    from focusfl.core.schedules import SCHEDULES
    from focusfl.participation import PARTICIPATION
    from focusfl.problems import PROBLEMS
    from focusfl.studies.report import terminal

    def describe(section: str, make: Callable) -> dict:
        parameters = inspect.signature(make).parameters.values()
        return {
            "what": (inspect.getdoc(make) or "").split("\n")[0],
            "options": {
                p.name: None if p.default is p.empty else p.default
                for p in parameters
                if section != "schedules" or p.name != "lr"  # which the study says
            },
        }

    registries: dict[str, Mapping[str, Callable]] = {
        "algorithms": ALGORITHMS,
        "participation": PARTICIPATION,
        "problems": PROBLEMS,
        "schedules": SCHEDULES,
        "compressors": COMPRESSORS,
    }
    sections = {
        section: {name: describe(section, make) for name, make in registry.items()}
        for section, registry in registries.items()
    }
    if options.json:
        print(json.dumps(sections, indent=2, default=repr))
        return 0
    for section, kinds in sections.items():
        rows = [(name, about["what"], ", ".join(about["options"])) for name, about in kinds.items()]
        title = section + " (compression)" * (section == "compressors")
        terminal.print_table("", (title, "", "options"), rows)
    terminal.print_text("Data sets: focusfl data list.")
    return 0

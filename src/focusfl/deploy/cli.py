"""`focusfl deploy`: parse, call, print."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focusfl.deploy.local import Outcome


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommands, by the function that adds any command."""
    local = command(
        "local", _local, "run a study on Flower, on real processes of this machine",
        "focusfl deploy local study.toml --clients 4 --tls",
    )  # fmt: skip
    local.add_argument(
        "what", type=Path, metavar="CONFIG", help="TOML file of a study, or an app"
    )
    local.add_argument("--clients", type=int, help="SuperNodes (as in the study)")
    local.add_argument("--algorithm", help="of the study (its first)")
    local.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="change one setting of the study; may be repeated",
    )  # fmt: skip
    local.add_argument(
        "--tls", action="store_true", help="encrypt, and let known SuperNodes in alone"
    )
    local.add_argument(
        "--warm", action="store_true",
        help="SuperNodes that look for work often and keep a Python warm",
    )  # fmt: skip
    local.add_argument(
        "--chaos", default="", metavar="SPEC",
        help="what goes wrong: drop=0.2,node=3,superlink=1,server@9,disk:2@12,seed=7",
    )  # fmt: skip
    local.add_argument(
        "--deadline", type=float, default=60.0, metavar="SECONDS",
        help="after which a round closes without who is missing (60)",
    )  # fmt: skip
    local.add_argument("--out", type=Path, help="folder for it all (runs/deploy-NAME)")
    init = command(
        "init", _init, "write a Flower app, ready for several hosts",
        "focusfl deploy init hospitals",
    )  # fmt: skip
    init.add_argument("folder", type=Path, help="to be made")
    status = command(
        "status", _status, "say what runs of what `deploy local` has started",
        "focusfl deploy status runs",
    )  # fmt: skip
    status.add_argument("folder", type=Path, nargs="?", default=Path("runs"))


def _local(options: argparse.Namespace) -> int:
    if find_spec("flwr") is None:
        from focusfl.extras import missing

        raise ValueError(missing("deploying needs", "Flower", "flower"))
    from focusfl.deploy import chaos, study
    from focusfl.deploy.local import local_app, local_study
    from focusfl.engines.flower.events import short

    spec = chaos.parse(options.chaos)
    how = {"chaos": spec, "tls": options.tls, "warm": options.warm}
    if options.what.is_dir():
        if options.set or options.algorithm or options.clients:
            raise ValueError("an app has its settings in its pyproject.toml; set them.")
        folder = options.out or Path("runs") / f"deploy-{options.what.resolve().name}"
        outcome = local_app(options.what, folder, _watch, **how)
    else:
        deployed = study.load(
            options.what, options.set, options.algorithm, options.clients
        )
        folder = options.out or Path("runs") / f"deploy-{deployed.study.name}"
        settings = {"deadline": options.deadline}
        outcome = local_study(deployed, folder, _watch, settings=settings, **how)
    found = _summary(outcome)
    if options.json:
        print(json.dumps({**found, "folder": str(folder)}, indent=2))
    else:
        print("  ".join(f"{name} {short(value)}" for name, value in found.items()))
        print(f"written: {folder}")
    return 0


def _watch(event: Mapping[str, Any]) -> None:
    """Show what happens, a line each, on stderr."""
    from focusfl.engines.flower.events import describe

    if words := describe(event):
        print(words, file=sys.stderr, flush=True)


def _summary(outcome: "Outcome") -> dict[str, Any]:
    share = outcome.masks.mean(0).round(3).tolist()
    gap = {} if outcome.gap is None else {"tracking_gap": outcome.gap}
    return {
        "rounds": len(outcome.masks), "epochs": outcome.epochs, "late": outcome.late,
        "seconds": round(outcome.seconds, 1), **outcome.metrics,
        **gap, "participation": share,
    }  # fmt: skip


def _init(options: argparse.Namespace) -> int:
    from focusfl.deploy import apps

    files = apps.init(options.folder)
    if options.json:
        print(json.dumps({"files": [str(file) for file in files]}))
    else:
        print("\n".join(f"written: {file}" for file in files))
    return 0


def _status(options: argparse.Namespace) -> int:
    from focusfl.deploy import status
    from focusfl.report import terminal

    found = status.search(options.folder)
    if options.json:
        print(json.dumps(found, indent=2))
    elif not found:
        print(f"nothing was started in {options.folder}")
    for folder, about in found.items() if not options.json else ():
        rows = [(name, str(pid), state) for name, pid, state in about["processes"]]
        terminal.print_table(f"{folder}: {about['progress']}", ("", "pid", ""), rows)
    return 0

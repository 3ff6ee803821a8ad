"""`focusfl tune`: the best step size of every algorithm of a study."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from focusfl.cli.options import changes, folder, results, scenarios


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command."""
    sub = command(
        "tune", _tune, "find the best step size of every algorithm of a study",
        "focusfl tune study.toml --set rounds=200",
    )  # fmt: skip
    sub.add_argument("study", type=Path, help="TOML file of the study")
    changes(sub)
    results(sub)
    scenarios(sub)


def _tune(options: argparse.Namespace) -> int:
    """Double or halve steps as long as runs gain; print what to write into a study."""
    from focusfl.studies import spec
    from focusfl.studies.report import terminal
    from focusfl.studies.report.columns import short
    from focusfl.studies.report.names import label
    from focusfl.studies.tuning import tune

    plan = spec.load(options.study, options.set, options.algorithms, options.participation)
    place = folder(options, f"{plan.name}-tuning")
    with terminal.study_progress(plan, []) as (watch, _):
        found = list(tune(plan, place, watch))
    if options.json:
        print(json.dumps([one._asdict() for one in found], indent=2))
        return 0
    rows = [
        (one.participation, label(one.algorithm), str(one.local_steps), short(one.lr),
         f"{short(one.tried[0])} to {short(one.tried[-1])}")
        for one in found
    ]  # fmt: skip
    title = f"best step sizes after {plan.rounds:,} rounds"
    heads = ("participation", "algorithm", "local steps", "lr", "tried")
    terminal.print_table(title, heads, rows)
    best: dict[str, list[float]] = {}
    for one in found:
        own = best.setdefault(one.algorithm, [])
        own += [one.lr] * (one.lr not in own)
    for name, lrs in best.items():
        print(f"--set algorithms.{name}.lr={lrs if len(lrs) > 1 else lrs[0]}")
    return 0

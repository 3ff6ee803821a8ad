"""`focusfl reproduce`: run a study of the paper, or one beside it, that ships with the package."""

import argparse
from collections.abc import Callable

from focusfl.cli.options import changes, folder
from focusfl.cli.studies import run_options, run_study

STUDIES = {
    "ridge": "run the convergence figure as the paper's text has it",
    "ridge-public-code": "run the convergence figure as the public code has it",
    "quadratics": "run everything on well-conditioned quadratics",
    "cifar10": "train SG-FOCUS and the others on CIFAR-10, which takes a GPU",
    "hospitals": "train on four real hospitals, one of them rarely online",
    "survival": "train a model of survival in six regions, one of them rarely online",
}


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands, one per study."""
    for name, what in STUDIES.items():
        sub = command(name, _reproduce, what, f"focusfl reproduce {name}")
        changes(sub)
        run_options(sub)


def _reproduce(options: argparse.Namespace) -> int:
    from focusfl.studies.spec import STUDIES as SHIPPED

    options.study = SHIPPED / f"{options.name}.toml"
    options.out = folder(options, f"reproduce-{options.name}")
    return run_study(options)

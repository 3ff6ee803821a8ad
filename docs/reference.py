"""Pages that are made of the code when the site is built: studies and commands.

A page in docs/ holds `<!-- reference: NAME -->` where the tables of NAME go.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import numpy as np

from focusfl import algorithms
from focusfl.algorithms import ALGORITHMS
from focusfl.algorithms.wrapped import innermost
from focusfl.cli import parser
from focusfl.cli.data import size
from focusfl.compression import COMPRESSORS, Quantize
from focusfl.core import CannotForget
from focusfl.core.schedules import SCHEDULES
from focusfl.data import DATA_SETS
from focusfl.participation import PARTICIPATION, by_rarity
from focusfl.problems import PROBLEMS
from focusfl.studies import schema

MARK = re.compile(r"<!-- reference: (\w+) -->")
# Those that have tables of their own.
TABLES = {
    "problem", "participation", "algorithms", "schedule", "stop", "privacy", "compression",
    "secure",
}  # fmt: skip
# Keys that sections have beside what their constructors take.
COMMON = {
    "lr": "step sizes of its own",
    "local_steps": "local steps of its own",
    "schedule": "how its steps follow the round, if not as everybody's",
    "noise": "standard deviation of noise on every entry of every gradient",
    "by_rarity": "chances that follow how unusual a client's data are",
}


# What a key means wherever nobody says otherwise.
USUAL = {
    "A": "features: clients x rows x dim",
    "mask": "where there is a row: clients x rows; everywhere if not given",
    "penalty": "factor of |x|² / 2",
    "seed": "of all that is drawn",
}


def filled(markdown: str) -> str:
    """Put tables where a page asks for them."""
    pages: dict[str, Callable[[], Iterator[str]]] = {
        "study": study,
        "problems": lambda: kinds(PROBLEMS, schema.PROBLEM, "problem"),
        "participation": lambda: kinds(PARTICIPATION, schema.SCENARIO, "participation"),
        "algorithms": lambda: kinds(ALGORITHMS, schema.ALGORITHM, "algorithms"),
        "compressors": lambda: kinds(COMPRESSORS, schema.Section(COMPRESSORS), "compressors"),
        "schedules": lambda: kinds(SCHEDULES, schema.SCHEDULE, "schedule"),
        "algorithm_classes": lambda: classes(ALGORITHMS),
        "compressor_classes": lambda: classes(COMPRESSORS),
        "participation_classes": lambda: classes(PARTICIPATION),
        "commands": commands,
        "departures": departures,
        "data": data_sets,
    }
    return MARK.sub(lambda mark: "\n\n".join(pages[mark[1]]()), markdown)


def departures() -> Iterator[str]:
    """How every algorithm that can be deployed lets a site go."""
    wrappers = {"client_opt", "server_opt", "compressed", "stale"}
    plain = [kind() for name, kind in ALGORITHMS.items() if name not in wrappers]
    coded = [algorithms.Compressed(each, Quantize()) for each in plain]
    rows: dict[tuple[str, str], list[str]] = {}
    for each, among_coded in zip(plain, coded, strict=True):
        name = type(each).__name__
        rows.setdefault((_departure(each), _departure(among_coded)), []).append(f"`{name}`")
    lines = [(", ".join(names), *how) for how, names in rows.items()]
    yield _table(("algorithm", "when a site leaves", "within `Compressed`"), lines)
    yield "`ClientOpt` and `ServerOpt` let a site go as the algorithm inside does."


def _departure(algorithm: Any) -> str:
    try:
        algorithm.forget(*algorithm.init(np.zeros(1)), 1.0, 2.0)
    except CannotForget:
        return "a new generation begins"
    inner = innermost(algorithm)
    fields = inner.tracked(*inner.init(np.zeros(1)))
    if not fields:
        return "nothing is to be taken back"
    return f"its state is taken out of {', '.join(f'`{name}`' for name in fields)}"


def study() -> Iterator[str]:
    """The keys of a study, of its [stop], and of chances by rarity."""
    yield keys(schema.Settings, {"rounds": "to run, at most"}, without=TABLES)
    yield "### [stop]"
    yield keys(schema.Stop, {})
    yield "### by_rarity"
    yield "A table in a participation model, in place of `p` or `w`."
    yield keys(schema.chances_by_rarity(), meanings(by_rarity), without={"kind"})


def kinds(among: Any, shape: schema.Section, section: str) -> Iterator[str]:
    """A heading, a sentence and a table for every kind of a section."""
    shared = {"kind", *(COMMON if section != "problem" else ())}
    for kind, made_by in among.items():
        model = shape.model(kind, made_by)
        yield f"### {kind} {{ #{section}-{kind} }}"
        yield (model.__doc__ or "").strip()
        yield keys(model, meanings(made_by), without=shared)


def classes(parts: Any) -> Iterator[str]:
    """An entry for every class of a registry, from its docstring."""
    for part in parts.registered.values():
        if not part.__module__.startswith("focusfl."):
            continue  # somebody else's, registered in this process
        package = sys.modules[part.__module__.rpartition(".")[0]]
        place = package.__name__ if part.__name__ in vars(package) else part.__module__
        yield f"::: {place}.{part.__name__}\n    options: {{ heading_level: 3, members: false }}"


def keys(model: Any, known: dict[str, str], without: Any = ()) -> str:
    """A table of the keys a table of a study may have."""
    lines = []
    for name, field in model.model_fields.items():
        if name in without:
            continue
        default = "" if field.default is None else f"`{_toml(field.default)}`"
        if field.is_required():
            default = "needed"
        words = field.description or known.get(name) or USUAL.get(name, "")
        lines.append((f"`{name}`", schema.described(field), default, words))
    if not lines:
        return "No keys of its own."
    return _table(("key", "what it takes", "default", "what it means"), lines)


def meanings(made_by: Callable) -> dict[str, str]:
    """What a constructor says of its arguments: in its Args, or beside its fields."""
    text = inspect.getdoc(made_by) or ""
    found = re.search(r"^Args:\n((?:(?: .*)?\n)+)", text + "\n", re.M)
    if found:
        own = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", found[1], re.M)
        return {name: " ".join(words.split()) for name, words in own}
    if inspect.isclass(made_by):
        known: dict[str, str] = {}
        for cls in reversed(made_by.__mro__[:-1]):  # fields may be a base's
            if cls.__module__.startswith("focusfl."):
                source = inspect.getsource(cls)
                known |= re.findall(r"^    (\w+): [^\n#]*?  # (.*)$", source, re.M)
        return known
    return {}


def data_sets() -> Iterator[str]:
    """Every data set: what it is, whom to cite, who may use it how, and its size."""
    lines = []
    for name, entry in DATA_SETS.items():
        clients = "any" if entry.clients is None else f"{entry.clients:,}"
        what = f"{entry.what} ({entry.citation})"
        lines.append((f"`{name}`", what, clients, entry.licence, size(entry)))
    yield _table(("name", "what", "clients", "licence", "size"), lines)


def commands() -> Iterator[str]:
    """Every command: what it does, its arguments, an example."""
    yield from _commands(parser(), "focusfl")


def _commands(whole: argparse.ArgumentParser, name: str) -> Iterator[str]:
    (among,) = (a for a in whole._actions if isinstance(a, argparse._SubParsersAction))
    for word, sub in among.choices.items():
        own = f"{name} {word}"
        if any(isinstance(a, argparse._SubParsersAction) for a in sub._actions):
            yield from _commands(sub, own)
            continue
        yield f"## {own}"
        yield sub.description or ""
        lines = [
            (_spelled(action), (action.help or "").replace("%%", "%"))
            for action in sub._actions
            if "--help" not in action.option_strings
        ]
        yield _table(("argument", "what it does"), lines)
        example = (sub.epilog or "").removeprefix("example: ")
        yield f"```bash\n{example}\n```"


def _spelled(action: argparse.Action) -> str:
    """An argument as it is written on a command line."""
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    if action.option_strings and action.nargs != 0:
        name += f" {action.metavar or action.dest.upper()}"
    return f"`{name}`" + (" (may be left out)" if action.nargs == "?" else "")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return f'"{value}"' if isinstance(value, str) else str(value)


def _table(heads: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    every = [heads, ("---",) * len(heads), *lines]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in every]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)

"""TOML text, and the line on which a key of it stands."""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

HEADER = re.compile(r"^\s*\[\[?(?P<path>[^\]]+)\]\]?\s*(#.*)?$")
KEY = re.compile(r"""^\s*(?P<path>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[^\s=.]+)*)\s*=""")
PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
# Strings of several lines and of one, comments, brackets and line ends.
TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'''
    r"""'[^'\n]*'|\#[^\n]*|[\[\]{}\n]""",
    re.DOTALL,
)
MAX_DEPTH = 100  # names, one inside the other, whose lines are looked up

Keys = tuple[str, ...]


class Source(NamedTuple):
    """A parsed file, with changes on top of it."""

    table: dict[str, Any]
    where: str  # the name of the file
    lines: dict[Keys, int]  # of every key and table, from 1
    changed: dict[Keys, str]  # by --set, in the words of the user

    def place(self, path: Keys) -> str:
        """Say where a key was set: a line of the file, or an option."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.changed:
                return f"--set {self.changed[path[:length]]}: "
            if path[:length] in self.lines:
                return f"{self.where}, line {self.lines[path[:length]]}: "
        return f"{self.where}: "


def read(path: Path) -> Source:
    """Read a file."""
    try:
        text = path.read_text("utf-8")
        return Source(tomllib.loads(text), str(path), _lines(text), {})
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"cannot read {path}: {reason}.") from None
    except (ValueError, RecursionError) as error:  # a number may have too many digits for Python
        raise ValueError(f"{path} is not TOML: {error}.") from None


def change(source: Source, change: str) -> None:
    """Apply `a.b=value` to a source; the value is TOML, or else text."""
    path, equals, text = change.partition("=")
    keys = tuple(part.strip() for part in path.split("."))
    if not equals or not all(keys):
        raise ValueError(f"--set takes key=value; got {change!r}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    table = source.table
    for name in keys[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ValueError(f"--set {change}: {name!r} is a value, not a table.")
    table[keys[-1]] = value
    source.changed[keys] = change


def _lines(text: str) -> dict[Keys, int]:
    """Where every key and table of a valid file is, but for keys inside of values."""
    lines: dict[Keys, int] = {}
    table: Keys = ()
    inside = _inside(text)
    for number, line in enumerate(text.split("\n"), 1):
        if number in inside:
            continue
        if header := HEADER.match(line):
            table = _parts(header["path"])
            lines.setdefault(table, number)
        elif key := KEY.match(line):
            path = (*table, *_parts(key["path"]))
            for length in range(len(table) + 1, min(len(path), MAX_DEPTH) + 1):
                lines.setdefault(path[:length], number)
    return lines


def _parts(path: str) -> Keys:
    return tuple(part.strip("\"'") for part in PART.findall(path))


def _inside(text: str) -> set[int]:
    """Return the numbers of lines that begin inside of a value."""
    lines, number, depth = set(), 1, 0
    for token in TOKEN.findall(text):
        depth += (token in "[{") - (token in "]}")
        for _ in range(token.count("\n")):
            number += 1
            if depth or len(token) > 1:
                lines.add(number)
    return lines

"""TOML text, and the line on which a key of it stands."""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

HEADER = re.compile(r"^\s*\[\[?(?P<path>[^\]]+)\]\]?\s*(#.*)?$")
KEY = re.compile(r"""^\s*(?P<path>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[^\s=.]+)*)\s*=""")
PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")

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
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None


def change(source: Source, change: str) -> None:
    """Apply `a.b=value` to a source; the value is TOML, or else text."""
    path, equals, text = change.partition("=")
    keys = tuple(part.strip() for part in path.split("."))
    if not equals or not all(keys):
        raise ValueError(f"--set takes key=value; got {change!r}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
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
    rest = ""  # of a value that goes on over several lines
    for number, line in enumerate(text.splitlines(), 1):
        if rest:
            rest += "\n" + line
        elif header := HEADER.match(line):
            table = _parts(header["path"])
            lines.setdefault(table, number)
        elif key := KEY.match(line):
            path = (*table, *_parts(key["path"]))
            for length in range(len(table) + 1, len(path) + 1):
                lines.setdefault(path[:length], number)
            rest = "value =" + line[key.end() :]
        if rest and _whole(rest):
            rest = ""
    return lines


def _parts(path: str) -> Keys:
    return tuple(part.strip("\"'") for part in PART.findall(path))


def _whole(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True

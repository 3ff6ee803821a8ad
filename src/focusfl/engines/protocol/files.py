"""Files that survive a crash at any moment, readable by their owner alone."""

import json
import os
import re
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from focusfl.engines.protocol.format import Refused, Wired
from focusfl.files import clear_parts, renamed, sync, take_lock

MAGIC = b"focusfl wire 1\n"
LETTERS = (string.ascii_letters + string.digits + "_.-").encode()  # of a name
LONGEST = 100


def check_name(what: str, name: str) -> None:
    """Raise unless a name is fit for a file and a log."""
    fit = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name, re.A)
    if not fit or len(name) > LONGEST:
        raise ValueError(
            f"{what} must be a name of letters, digits, '_', '-' and '.'; got {name!r}."
        )


def make_folder(folder: Path) -> None:
    """Make a folder that its owner alone can enter; then its name is on disk.

    Also if it is there: whoever made it may have died before that.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for parent in folder.parents:
        if parent.stat().st_dev != folder.stat().st_dev or not os.access(
            parent, os.W_OK
        ):
            return  # nothing in it can be of our making
        sync(parent)


def check_names(what: str, names: Sequence[str]) -> None:
    """Raise unless all of these are such names: a million of them in no time."""
    try:
        lines = "\n".join(["", *names, ""]).encode("ascii")
        if (
            not lines.translate(None, LETTERS + b"\n")
            and lines.count(b"\n") == len(names) + 1
            and not any(b"\n" + c in lines for c in (b"\n", b".", b"-"))
            and max(map(len, names), default=0) <= LONGEST
        ):
            return
    except (TypeError, UnicodeEncodeError):
        pass
    for name in names:
        check_name(what, name)


def save(path: Path, entries: Wired, before: Path | None = None) -> None:
    """Replace a file as a whole; when this returns, it is on disk.

    What is there more than once is written once. The file that was there goes on under
    the name `before`.
    """
    offsets: dict[bytes, int] = {}
    table, end = {}, 0
    for name, blob in entries.items():
        if blob not in offsets:
            offsets[blob] = end
            end += len(blob)
        table[name] = [offsets[blob], len(blob)]
    index = json.dumps(table).encode()
    with (
        renamed(path, private=True, before=before) as part,
        open(part, "wb") as file,
    ):
        file.write(MAGIC + b"%d\n" % len(index) + index)
        for blob in offsets:
            file.write(blob)


def load(path: Path, wanted: Callable[[str], bool] = bool) -> Wired | None:
    """Read the entries wanted; None if there is no file, Refused if it is damaged."""
    try:
        with open(path, "rb") as file:
            if file.readline() != MAGIC:
                raise ValueError("it is something else")
            table = json.loads(file.read(int(file.readline())))
            start, entries = file.tell(), {}
            for name, (offset, size) in table.items():
                if wanted(name):
                    file.seek(start + offset)
                    entries[name] = file.read(size)
                    if len(entries[name]) != size:
                        raise ValueError("it is too short")
            return entries
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{path} is damaged: {error}.") from None


@contextmanager
def lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Keep a file to oneself; the lock ends with the process at the latest."""
    beside = path.with_name(path.name + ".lock")  # the file itself is replaced
    with open(os.open(beside, os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:
        if not take_lock(file.fileno(), wait):
            raise ValueError(f"{path} is held by another process.")
        clear_parts(path)
        yield

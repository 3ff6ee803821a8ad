"""Files that are there whole or not at all: one writer for everything."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let an error name the file that was to be written: on a full disk none does."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, reason, str(path)) from error


@contextmanager
def renamed(target: Path) -> Iterator[Path]:
    """Give a temporary name to write under; rename it to the target if all went well.

    When this ends, the file is on disk under its name, or an error says why not.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        named(target),
        tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as scratch,
    ):
        part = Path(scratch) / target.name
        yield part
        _sync(part)
        os.replace(part, target)
        _sync(target.parent)


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, whole or not at all."""
    with renamed(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _sync(path: Path) -> None:
    """See to it that a file, or the names in a folder, survive this machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

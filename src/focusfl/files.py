"""Files that are there whole or not at all: one writer for everything."""

import glob
import os
import shutil
import uuid
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
def renamed(
    target: Path, private: bool = False, folder: bool = False
) -> Iterator[Path]:
    """Give a temporary name to write under; rename it to the target if all went well.

    When this ends, what was written is on disk under its name, or an error says why
    not. A private file can be read by its owner alone. For a `folder` the name is that
    of an empty one, which takes the place of nothing. What a killed writer leaves
    behind, `clear_parts` removes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{_prefix(target)}{uuid.uuid4().hex[:8]}")
    with named(target):
        try:
            if folder:
                part.mkdir()
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                os.close(os.open(part, flags, 0o600 if private else 0o666))
            yield part
            for path in (*(part.rglob("*") if folder else ()), part):
                sync(path)
            os.replace(part, target)
        except BaseException:
            _remove(part)
            raise
        sync(target.parent)


def take_lock(handle: int, wait: bool = False) -> bool:
    """Keep an open file or folder to this process until it is closed; give False if
    another has it. On Windows nobody is kept out.

    Raises:
        OSError: If the file system knows no locks.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def clear_parts(target: Path) -> None:
    """Remove what writers of a file have left that were killed; none may be alive."""
    for part in target.parent.glob(f"{glob.escape(_prefix(target))}*"):
        _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def _prefix(target: Path) -> str:
    return f".part-{target.name}-"


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, whole or not at all."""
    with renamed(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sync(path: Path) -> None:
    """See to it that a file, or the names in a folder, survive this machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Files that are there whole or not at all: one writer for everything.

A file can be sealed: somewhere in it, where its format has room for words, it says the
SHA-256 of its content, with zeros where that is said. It is one file as before, which
whoever knows its format can read, and one damaged bit is seen.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any

SEAL = "focusfl-sha256:"
DIGITS = 64
BLANK = SEAL + DIGITS * "0"  # what a writer puts where the seal is to be


class Damaged(ValueError):
    """A file that is not as it was written."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; ValueError also where it is nested too deeply for Python to follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


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
    target: Path, private: bool = False, folder: bool = False, sealed: bool = False
) -> Iterator[Path]:
    """Give a temporary name to write under; rename it to the target if all went well.

    When this ends, what was written is on disk under its name, or an error says why
    not. A private file can be read by its owner alone. For a `folder` the name is that
    of an empty one, which takes the place of nothing. Into a `sealed` file its seal is
    put, in the place of the one BLANK that was written. What a killed writer leaves
    behind, `clear_parts` removes.
    """
    make_folder(target.parent)
    part = target.with_name(f"{_prefix(target)}{uuid.uuid4().hex[:8]}")
    with named(target):
        try:
            if folder:
                part.mkdir()
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                os.close(os.open(part, flags, 0o600 if private else 0o666))
            yield part
            if sealed:
                _seal(part)
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
    prefix = _prefix(target)
    try:
        names = os.listdir(target.parent)
    except OSError:
        return  # where nobody could write
    for name in names:
        if name.startswith(prefix):
            _remove(target.parent / name)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def _prefix(target: Path) -> str:
    return f".part-{target.name}-"


def make_folder(folder: Path, private: bool = False) -> None:
    """Make a folder and those it is in; their names are on disk when this ends.

    A private one can be entered by its owner alone.
    """
    above = () if folder.is_dir() else (folder, *folder.parents)
    new = [path for path in above if not path.exists()]
    folder.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
    for path in new:
        sync(path.parent)


def write(path: Path, content: str | bytes, sealed: bool = False) -> Path:
    """Write a file, whole or not at all."""
    with renamed(path, sealed=sealed) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path) -> tuple[bytes, str | None]:
    """Give what a file holds and the checksum that it says, None if it says none.

    Raises:
        Damaged: If its content has another checksum.
    """
    content = path.read_bytes()
    return content, _checked(path, content)


def check(path: Path, file: IO[bytes]) -> str | None:
    """The checksum that an open file says, None if it says none; see `read`."""
    if not os.fstat(file.fileno()).st_size:
        raise Damaged(f"{path} is empty")
    with mmap(file.fileno(), 0, access=ACCESS_READ) as whole:
        return _checked(path, whole)


def _checked(path: Path, whole: bytes | mmap) -> str | None:
    at = whole.find(SEAL.encode())
    if at < 0:
        return None
    at += len(SEAL)
    stated = bytes(whole[at : at + DIGITS]).decode(errors="replace")
    if stated != _digest(whole, at):
        raise Damaged(f"{path} is damaged: its checksum is not that of its content")
    return stated


def _seal(part: Path) -> None:
    with open(part, "r+b") as file, mmap(file.fileno(), 0) as whole:
        at = whole.find(BLANK.encode())
        if at < 0 or whole.find(SEAL.encode()) != whole.rfind(SEAL.encode()):
            raise ValueError(f"what says {SEAL!r} itself cannot be written.")
        at += len(SEAL)
        whole[at : at + DIGITS] = _digest(whole, at).encode()


def _digest(whole: bytes | mmap, at: int) -> str:
    """SHA-256 of a content, with zeros where its seal says it."""
    digest = hashlib.sha256()
    with memoryview(whole) as view:
        for some in (view[:at], b"0" * DIGITS, view[at + DIGITS :]):
            digest.update(some)
            if isinstance(some, memoryview):
                some.release()
    return digest.hexdigest()


def sync(path: Path) -> None:
    """See to it that a file, or the names in a folder, survive this machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Download the files of data sets, and check them.

A download goes into a file that ends in .part, which gets its final name when its checksum is
right. Of two processes that download the same file one waits for the other.

The environment variable FOCUSFL_OFFLINE=1 forbids downloads. FOCUSFL_MIRROR is the
address of a mirror: https://host/path is fetched from MIRROR/host/path.
"""

import hashlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from focusfl.core.files import make_folder, take_lock
from focusfl.data import places
from focusfl.data.registry import Entry, File, entry

CHUNK = 2**16  # bytes
TIMEOUT = 30.0  # seconds without an answer
LARGE = 50_000_000  # bytes; a download above this is announced


def fetch(name: str | Entry) -> list[Path]:
    """Download the files of a data set into the cache folder; return their paths.

    A file that is there with the right checksum is not downloaded again. For a data set in a
    pip package, the result is the folder of the package.

    Raises:
        ValueError: If there is no such data set, or a file cannot be downloaded: there is no
            network, its checksum is wrong, or the cache folder cannot be written to; or if
            the package is not installed.
    """
    wanted = entry(name)
    if wanted.package:
        return places.find(name)
    return [_fetch(wanted, file) for file in wanted.files]


def offline() -> bool:
    """Say whether FOCUSFL_OFFLINE forbids downloads."""
    return os.environ.get("FOCUSFL_OFFLINE", "") not in ("", "0")


def address(file: File) -> str:
    """Return the address of a file: its publisher's, or the one below $FOCUSFL_MIRROR."""
    mirror = os.environ.get("FOCUSFL_MIRROR")
    if not mirror:
        return file.url
    return f"{mirror.rstrip('/')}/{file.url.partition('://')[2]}"


def verify(name: str) -> dict[Path, str]:
    """Compare the files of a data set that are present with their checksums.

    Returns:
        For each path "good", "damaged: …", "repacked" for a file that is not the publisher's
        and has no checksum, or "in a package", which pip has checked. Empty if the data set
        is not there.
    """
    wanted, result = entry(name), {}
    checksums = {file.path: file.checksum for file in wanted.files}
    for path in places.present(wanted) or []:
        known = [checksum for file, checksum in checksums.items() if path.match(file)]
        if known:
            wrong = mismatch(path, known[0])
            result[path] = f"damaged: {wrong}" if wrong else "good"
        else:
            result[path] = "in a package" if wanted.package else "repacked"
    return result


def mismatch(path: Path, checksum: str) -> str | None:
    """Say how a file's checksum differs from the given one; None if it does not."""
    kind, _, wanted = checksum.partition(":")
    if kind == "git-tree":
        folder, _, wanted = wanted.partition(":")
        try:
            found = _tree(path, folder)
        except (OSError, EOFError, zipfile.BadZipFile) as error:
            return f"cannot read it as a zip archive: {error}"
    elif checksum:
        digest = hashlib.new("sha1" if kind == "git-blob" else kind, usedforsecurity=False)
        if kind == "git-blob":
            digest.update(f"blob {path.stat().st_size}\0".encode())
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, lambda: digest).hexdigest()
    else:
        return None
    return None if found == wanted else f"its {kind} must be {wanted}; got {found}"


def _tree(path: Path, folder: str) -> str:
    """Compute the name that git gives to a folder of files in a zip archive of a repository."""
    listing = {}
    with zipfile.ZipFile(path) as archive:
        for about in archive.infolist():
            parts = PurePosixPath(about.filename).parts  # there is a folder around all
            if parts[1:-1] == (folder,) and not about.is_dir():
                mode = b"100755 " if about.external_attr >> 16 & 0o111 else b"100644 "
                name = parts[-1].encode()
                content = _sha1(b"blob", archive.read(about))
                listing[name] = mode + name + b"\0" + content
    entries = [listing[name] for name in sorted(listing)]
    return _sha1(b"tree", b"".join(entries)).hex()


def _sha1(kind: bytes, content: bytes) -> bytes:
    whole = kind + b" %d\0" % len(content) + content
    return hashlib.sha1(whole, usedforsecurity=False).digest()


def _fetch(wanted: Entry, file: File) -> Path:
    import requests  # slow to import

    target, url = places.cache_folder() / file.path, address(file)
    if target.is_file() and mismatch(target, file.checksum) is None:
        return target
    if offline():
        raise ValueError(
            f"cannot fetch {url}: FOCUSFL_OFFLINE is set. Unset it, or put the file at {target}."
        )
    try:
        make_folder(target.parent)
        with _locked(target.parent):
            # Another process may have fetched it in the meantime.
            if not target.is_file() or mismatch(target, file.checksum):
                _download(wanted, file, target)
    except requests.RequestException as error:
        raise ValueError(
            f"cannot fetch {url}: {_reason(error)}. Try `focusfl data fetch "
            f"{wanted.name}` again, or put the file at {target} by other means."
        ) from None
    except OSError as error:
        raise ValueError(
            f"cannot write {target}: {error.strerror or error}. Let FOCUSFL_CACHE name "
            "a folder that can be written to."
        ) from None
    return target


def _download(wanted: Entry, file: File, target: Path) -> None:
    """Download a file under a temporary name, and rename it if its checksum is right."""
    import requests

    url, part = address(file), target.with_name(f"{target.name}.part")
    headers = {"Accept-Encoding": "identity"}  # as it is published, not packed for the way
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            answer.raise_for_status()
            total = int(answer.headers.get("Content-Length", 0)) or file.size
            if total and total > LARGE:
                print(
                    f"{wanted.name}: {total / 1e6:,.0f} MB from {url}, licence: {wanted.licence}",
                    file=sys.stderr,
                )
            with open(part, "wb") as out, _bar(target.name, total) as advance:
                for chunk in answer.iter_content(CHUNK):
                    out.write(chunk)
                    advance(len(chunk))
        if wrong := mismatch(part, file.checksum):
            raise ValueError(
                f"{url} is not the file that belongs to {wanted.name}: {wrong}. It was not "
                "kept. Try again; if it is so again, it has changed at its source."
            )
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _bar(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield a function to call with numbers of bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that download; wait for one that has the lock."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        take_lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def _reason(error: Exception) -> str:
    """Say what went wrong in a few words, where requests takes several lines."""
    answer = getattr(error, "response", None)
    if answer is not None:
        return f"the server answered {answer.status_code} {answer.reason}"
    inner: Any = error  # requests wraps an exception of urllib3, which may wrap another
    while causes := [
        value for value in (getattr(inner, "reason", None), *inner.args)
        if isinstance(value, Exception)
    ]:  # fmt: skip
        inner = causes[0]
    return str(inner).rpartition(": ")[2] or type(inner).__name__

"""Download the files of data sets, and check them.

A download goes into a file that ends in .part. After a broken connection it resumes where it
ended, at once or the next time. Its checksum is compared before it gets its name, and of two
processes that download the same file one waits for the other.

The environment variable FOCUSFL_OFFLINE=1 forbids downloads. FOCUSFL_MIRROR is the
address of a mirror: https://host/path is fetched from MIRROR/host/path.
"""

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from focusfl.core.files import make_folder, take_lock
from focusfl.data import places
from focusfl.data.registry import Entry, File, entry

TRIES = 3  # connections to one file that may break
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
    import pooch  # slow to import, with what it brings
    import requests

    cache, url = places.cache_folder(), address(file)
    target = cache / file.path
    if target.is_file() and mismatch(target, file.checksum) is None:
        return target
    if offline():
        raise ValueError(
            f"cannot fetch {url}: FOCUSFL_OFFLINE is set. Unset it, or put the file at {target}."
        )
    pooch_knows = file.checksum.startswith(("md5:", "sha256:"))
    pot = pooch.create(
        path=cache,
        base_url="",
        registry={file.path: file.checksum if pooch_knows else None},
        urls={file.path: url},
    )
    try:
        make_folder(target.parent)
        with _locked(target.parent):
            if target.is_file() and mismatch(target, file.checksum):
                target.unlink()
            return Path(pot.fetch(file.path, downloader=_Download(wanted, file)))
    except _Wrong as error:
        raise ValueError(
            f"{url} is not the file that belongs to {wanted.name}: {error}. It was not "
            "kept. Try again; if it is so again, it has changed at its source."
        ) from None
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


class _Wrong(Exception):
    """A download has another checksum."""


class _Download:
    """A downloader for pooch that resumes after broken connections."""

    def __init__(self, wanted: Entry, file: File) -> None:
        self.wanted, self.file = wanted, file

    def __call__(self, url: str, output: str, pot: Any) -> None:
        import requests

        part = Path(pot.path) / f"{self.file.path}.part"
        for left in reversed(range(TRIES)):
            try:
                self._more(url, part)
                break
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                if not left or not part.exists():  # nobody has answered at all
                    raise
        if wrong := mismatch(part, self.file.checksum):
            part.unlink()
            raise _Wrong(wrong)
        os.replace(part, output)

    def _more(self, url: str, part: Path) -> None:
        """Download the rest of a part."""
        import requests

        done = part.stat().st_size if part.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if answer.status_code == 416:  # nothing is missing, or the part is wrong
                if answer.headers.get("Content-Range") != f"bytes */{done}":
                    part.unlink()
                    self._more(url, part)
                return
            answer.raise_for_status()
            if answer.status_code != 206:  # all of it, whatever was asked for
                done = 0
            length = answer.headers.get("Content-Length")
            total = done + int(length) if length else self.file.size
            if total and total > LARGE:
                print(
                    f"{self.wanted.name}: {total / 1e6:,.0f} MB from {url}, licence: "
                    f"{self.wanted.licence}",
                    file=sys.stderr,
                )
            with open(part, "ab" if done else "wb") as out, _bar(part, total) as bar:
                bar(done)
                for some in answer.iter_content(CHUNK):
                    out.write(some)
                    bar(len(some))


@contextmanager
def _bar(part: Path, total: int | None) -> Iterator[Any]:
    """Show a progress bar on a terminal; yield a function to call with numbers of bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), DownloadColumn())
    with Progress(
        *columns,
        TransferSpeedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(part.name.removesuffix(".part"), total=total)
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

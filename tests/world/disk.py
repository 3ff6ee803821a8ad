"""A disk on which a crash leaves what was synced; of the rest, whatever it likes."""

import builtins
import io
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

CALLS = {  # what a process may die before, and chance, and where they are looked up
    os: [
        "open",
        "fsync",
        "replace",
        "rename",
        "unlink",
        "mkdir",
        "rmdir",
        "link",
        "urandom",
    ],
    builtins: ["open"],
    io: ["open"],
    random: ["_urandom"],
}

Image = dict[str, bytes | None]  # files by path; None: a folder


class Killed(BaseException):
    """The process dies here."""


class Death(NamedTuple):
    """Before which operation a process dies, and how power is lost, if it is."""

    calls: int
    power: random.Random | None


class Disk:
    """The folder of one machine, and what of it would survive a loss of power.

    Files are real ones. A file's bytes survive once it was synced, a change of names
    once its folder was; changes of names survive in the order they were made in.
    """

    def __init__(self, folder: Path, seed: int = 0):
        self.folder, self.rng = str(folder), random.Random(seed)
        self.operations = 0
        os.mkdir(self.folder)
        self._found()

    def _found(self) -> None:
        """Take all that is there for synced."""
        self.inode = os.stat(self.folder).st_ino
        self.now: dict[str, int] = {}  # inodes by path
        self.synced: dict[int, bytes] = {}
        for top, folders, files in os.walk(self.folder):
            for name in folders:
                self.now[f"{top}/{name}"] = os.stat(f"{top}/{name}").st_ino
            for name in files:
                path = f"{top}/{name}"
                self.now[path] = ino = os.stat(path).st_ino
                self.synced[ino] = _read(path)
        self.safe = dict(self.now)  # what a crash leaves of the names
        self.changes: list[dict[str, int | None]] = []  # since then

    @contextmanager
    def running(self, calls: int | None = None) -> Iterator[None]:
        """Let a process work here; it dies before its n-th operation, if it comes."""
        self.left = calls
        real = [(a, name, getattr(a, name)) for a in CALLS for name in CALLS[a]]
        for module, name, call in real:
            ours = self.rng.randbytes if "urandom" in name else None
            setattr(module, name, ours or partial(self._call, name, call))
        try:
            yield
        finally:
            for module, name, call in real:
                setattr(module, name, call)

    def _call(self, name: str, call: Any, *arguments: Any, **more: Any) -> Any:
        if name == "fsync":
            ino = os.fstat(arguments[0]).st_ino
            if ino != self.inode and ino not in self.now.values():
                return call(*arguments)
            self._tick()
            return self._sync(arguments[0], ino)
        path = arguments[0]
        if isinstance(path, int) or not os.fspath(path).startswith(self.folder):
            return call(*arguments, **more)
        paths = [os.fspath(a) for a in arguments if isinstance(a, str | os.PathLike)]
        if name == "open" and os.path.exists(paths[0]):
            if len(arguments) > 1 and arguments[1] != "rb":
                self._tick()
            return call(*arguments, **more)
        self._tick()
        result = call(*arguments, **more)
        self._note(name, *paths[:2])
        return result

    def _tick(self) -> None:
        if self.left is not None:
            if self.left <= 0:
                raise Killed
            self.left -= 1
        self.operations += 1

    def _note(self, name: str, path: str, other: str = "") -> None:
        """Remember a change of names, which its folder's sync makes last."""
        change: dict[str, int | None] = {}
        if name in ("replace", "rename"):
            change = {
                other + there.removeprefix(path): ino
                for there, ino in self.now.items()
                if there == path or there.startswith(path + "/")
            }
            change |= {there: None for there in self.now if there == path}
        elif name in ("unlink", "rmdir"):
            change = {path: None}
        else:
            made = other if name == "link" else path
            change = {made: os.stat(made).st_ino}
        self.changes.append(change)
        self.now = _changed(self.now, change)

    def _sync(self, handle: int, ino: int) -> None:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            path = next(path for path, there in self.now.items() if there == ino)
            self.synced[ino] = _read(path)
            return
        inodes = {ino: path for path, ino in self.now.items()}
        folder, left = inodes.get(ino, self.folder), []
        for change in self.changes:
            here = {p: i for p, i in change.items() if os.path.dirname(p) == folder}
            self.safe = _changed(self.safe, here)
            left.append({p: i for p, i in change.items() if p not in here})
        self.changes = [change for change in left if change]

    def lose_power(self, rng: random.Random) -> None:
        """Leave what was synced, and of the rest what chance wants."""
        names = self.safe
        for change in self.changes[: rng.randint(0, len(self.changes))]:
            names = _changed(names, change)
        paths = {ino: path for path, ino in self.now.items()}
        image: Image = {}
        for path, ino in sorted(names.items()):
            if path in self.now and os.path.isdir(path):
                image[path] = None
                continue
            synced = self.synced.get(ino, b"")
            written = _read(paths[ino]) if ino in paths else synced
            torn = written[: rng.randint(0, len(written))]
            zeros = torn + bytes(len(written) - len(torn))
            image[path] = rng.choice([synced, written, torn, zeros])
            if synced == written:
                image[path] = synced
        self.restore(image)

    def image(self) -> Image:
        """All that is there now."""
        return {p: None if os.path.isdir(p) else _read(p) for p in sorted(self.now)}

    def damaged(self, name: str, rng: random.Random) -> Image:
        """All that is there, but that a file is cut, has a bit flipped, or is gone."""
        image, path = self.image(), f"{self.folder}/{name}"
        whole = image.pop(path)
        at, way = rng.randrange(len(whole)), rng.randrange(3)
        flipped = whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)])
        if way < 2:
            image[path] = flipped + (whole[at + 1 :] if way else b"")
        return image

    def restore(self, image: Image) -> None:
        """Have all as it was then: synced, and nothing else."""
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        for path, content in image.items():
            if not os.path.isdir(os.path.dirname(path)):
                continue  # its folder did not survive
            if content is None:
                os.mkdir(path)
            else:
                with open(path, "wb") as file:
                    file.write(content)
        self._found()


def copy_database(source: Path, target: Path) -> None:
    """Copy a database that may be in use, as an operator makes a backup; or restore one."""
    for path in (target, Path(f"{target}-wal"), Path(f"{target}-shm")):
        path.unlink(missing_ok=True)  # a log left beside would be read into the copy
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def memory() -> str | None:
    """Where a file costs nothing: in memory, if this system has such a folder."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _changed(names: dict, change: dict) -> dict[str, int]:
    return {path: ino for path, ino in (names | change).items() if ino is not None}

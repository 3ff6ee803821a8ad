"""One leaf of everybody's memory: an array of this machine, or a file that is mapped.

Files have holes where nothing was written. Large rows are read and written past the
map, through which every page of them would cost a fault.
"""

import hashlib
import math
import os
import weakref
from functools import lru_cache
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from jaxtyping import Int, UInt32

from focusfl.core import files

NAME = "clients-{}.rows"  # of the file with one leaf
LARGE = 1 << 15  # bytes of a row
ROOM = 1 << 30  # bytes that others may write to the disk while rows are written
AGAIN = "remove the folder to begin at round 0"

Ids = Int[np.ndarray, "_"]
Row = np.ndarray  # what one client has in one leaf
Sums = UInt32[np.ndarray, "_"]  # of rows


def checksums(rows: np.ndarray) -> Sums:
    """A checksum of every row: its words, each times an odd number of its own, summed
    modulo 2^64; the upper half of that."""
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    size = flat.shape[1] * flat.itemsize
    width = next(width for width in (8, 4, 2, 1) if size % width == 0)
    words = np.ascontiguousarray(flat).view(f"u{width}").astype(np.uint64, copy=False)
    return (words @ _factors(size // width) >> np.uint64(32)).astype(np.uint32)


@lru_cache(8)
def _factors(many: int) -> np.ndarray:
    """Odd numbers that look like chance, and are the same everywhere."""
    drawn = hashlib.shake_128(b"focusfl rows").digest(8 * many)
    return np.frombuffer(drawn, "<u8").astype(np.uint64) | np.uint64(1)


class Leaf:
    """One leaf of all rows there are: an array, which may be the map of a file."""

    def __init__(self, array: np.ndarray, file: Any = None, path: Path = Path(), do: str = ""):
        """`path` names the file; `do` says what would do if it were damaged."""
        self.array, self._file, self._path, self._do = array, file, path, do
        self._size = array[0].nbytes
        self._past_the_map = file is not None and self._size >= LARGE
        if file is not None:
            weakref.finalize(self, file.close)

    def read(self, at: Ids, out: np.ndarray) -> None:
        """Copy some rows."""
        if not self._past_the_map:
            np.take(self.array, at, 0, out, "clip")  # any other mode copies twice
            return
        for place, row in zip(at.tolist(), out, strict=True):
            if os.preadv(self._file.fileno(), [row], place * self._size) != self._size:
                raise OSError(f"could not read all of row {place}")

    def write(self, at: Ids, rows: np.ndarray) -> None:
        """Replace some rows; raise OSError if the disk is full."""
        if self._file is None or not (self._past_the_map or self._is_tight(rows)):
            self.array[at] = rows
            return
        with files.named(self._path):
            for place, row in zip(at.tolist(), rows, strict=True):
                done = os.pwrite(self._file.fileno(), row.data, place * self._size)
                if done != self._size:
                    raise OSError(f"could not write all of row {place}")

    def _is_tight(self, rows: np.ndarray) -> bool:
        """Whether the disk might have no room for these: one that is full is an error
        past the map; through it, the system ends the process without a word."""
        disk = os.fstatvfs(self._file.fileno())
        return disk.f_bavail * disk.f_frsize < ROOM + 2 * rows.nbytes

    def check(self, rows: np.ndarray, sums: Sums, whose: Ids) -> None:
        """Raise Damaged unless rows of a file have the checksums that they should."""
        wrong = whose[checksums(rows) != sums]
        if len(wrong):
            raise files.Damaged(
                f"{self._path} is damaged, or of another time than its checkpoint: "
                f"{len(wrong)} of {len(whose)} rows are not as they were written, the "
                f"first that of client {wrong[0]}; {self._do}."
            )

    def flush(self) -> None:
        """See to it that what was written survives this machine."""
        if self._file is not None:
            with files.named(self._path):
                self.array.flush()  # type: ignore[attr-defined]
                os.fsync(self._file.fileno())


def map_leaves(
    folder: Path,
    shapes: list[tuple],
    leaves: list[Row],
    need: int,
    named: bool,
    resumed: bool,
) -> list[Leaf]:
    """Map a file per leaf. Raise if the disk is too small for what may be written:
    a process that writes to a full one through a map is ended by the system."""
    mapped: list[Leaf] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if named and not resumed:  # what a run left that was never kept
            for old in folder.glob(NAME.format("*")):
                old.unlink()
        free = disk_usage(folder).free
        if need > free:
            raise ValueError(
                f"what clients remember may take {need / 2**30:.3g} GiB, and the disk "
                f"of {folder} has {free / 2**30:.3g} GiB left. Use a folder on another."
            )
        for number, (shape, row) in enumerate(zip(shapes, leaves, strict=True)):
            count = int(np.prod(shape)) * row.itemsize
            file = _opened(folder / NAME.format(number), count, named, resumed)
            array = np.memmap(file, row.dtype, "r+", shape=shape)
            if named:
                path, do = folder / NAME.format(number), AGAIN
            else:
                path, do = folder, "run it again with another state_folder"
            mapped.append(Leaf(array, file, path, do))
    except OSError as error:
        raise ValueError(
            "clients' memory must be in a folder that can be written to; "
            f"got {folder}: {error.strerror}."
        ) from None
    return mapped


def _opened(path: Path, count: int, named: bool, resumed: bool) -> Any:
    """Open a file of so many bytes, all of them a hole if it is new."""
    if resumed:
        if not path.exists() or path.stat().st_size != count:
            raise ValueError(
                f"the checkpoint in {path.parent} needs {path.name}, which is missing "
                f"or of another size; {AGAIN}."
            )
        return open(path, "r+b")
    file = open(path, "w+b") if named else TemporaryFile(dir=path.parent)
    file.truncate(count)
    return file

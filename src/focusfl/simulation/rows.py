"""Clients' state off the device: arrays of this machine, or files that are mapped.

Nothing is written for a client until it takes part: until then it has the first row.

A store that a checkpoint keeps has two places per client. A row is never overwritten
while the newest checkpoint needs it: the first write after a checkpoint goes to the
client's other place. A checkpoint thus holds only which place is whose, and the checksum
of every row: what is read from a file must match it, so that neither a damaged row nor
one of another checkpoint is taken for the client's.

Files have holes where nothing was written. Large rows are read and written past the map,
through which every page of them would cost a fault.
"""

import hashlib
import math
import os
import weakref
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile, gettempdir
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, UInt32

from focusfl.core import files
from focusfl.core.files import Damaged
from focusfl.core.tree import Tree

NOWHERE = -1  # the place of a client that has not taken part
AT_ONCE = 1 << 26  # bytes of rows that `check_rows` reads at once
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


class Rows:
    """One leaf of everybody's memory, left where it is and not to be written to.

    rows[ids] reads the rows of some clients, np.asarray(rows) those of all.
    """

    def __init__(self, kept: Leaf, at: Ids, first: Row, sums: Sums | None = None):
        self._kept, self._at, self._first, self._sums = kept, at, first, sums
        self.shape, self.dtype = (len(at), *first.shape), first.dtype
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, ids: Any) -> np.ndarray:
        at = np.asarray(self._at[ids])
        out = np.empty((at.size, *self._first.shape), self.dtype)
        whose = np.asarray(np.arange(len(self))[ids]).ravel()
        _read(out, self._kept, at.ravel(), self._first, self._sums, whose)
        return out.reshape(*at.shape, *self._first.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("these rows are not one array; they must be copied.")
        return np.asarray(self[:], dtype)

    def __repr__(self) -> str:
        return f"Rows(shape={self.shape}, dtype={self.dtype})"


class Store:
    """The memory of all clients, a row per leaf and client."""

    def __init__(
        self,
        first: Tree,
        num_clients: int,
        on_disk: bool,
        folder: str | Path | None = None,
        named: bool = False,
        resumed: bool = False,
        most: int = 0,
    ):
        """`first` is a client's row before it has taken part; `most` of them will.

        Files that are `named` stay in the folder, for a run that is `resumed`; others
        vanish with the last array.
        """
        self.first = jax.tree.map(np.asarray, first)
        self.at = np.full(num_clients, NOWHERE)
        self._kept_at, self._safe = self.at.copy(), named
        leaves, self._structure = jax.tree.flatten(self.first)
        self._sums = np.zeros((len(leaves) if on_disk else 0, num_clients), np.uint32)
        shapes = [((1 + named) * num_clients, *row.shape) for row in leaves]
        if not on_disk:  # zeros cost nothing until they are written to
            pairs = zip(shapes, leaves, strict=True)
            self._kept = [Leaf(np.zeros(shape, row.dtype)) for shape, row in pairs]
            return
        folder = Path(gettempdir() if folder is None else folder).expanduser()
        need = (1 + named) * most * sum(row.nbytes for row in leaves)
        if resumed:
            need = 0  # was there when it began
        self._kept = map_leaves(folder, shapes, leaves, need, named, resumed)

    def rows(self) -> Tree:
        """Everybody's memory as it is now, leaf by leaf, without reading it."""
        at, sums = self.at.copy(), self._sums.copy()
        each = zip_longest(self._kept, jax.tree.leaves(self.first), sums)
        return jax.tree.unflatten(
            self._structure, [Rows(kept, at, row, own) for kept, row, own in each]
        )

    def read(self, ids: Ids, size: int | None = None) -> Tree:
        """Copy the rows of some clients into tables of so many rows."""
        at, tables = self.at[ids], []
        first_rows = jax.tree.leaves(self.first)
        for kept, first, sums in zip_longest(self._kept, first_rows, self._sums):
            table = np.zeros((size or len(ids), *first.shape), first.dtype)
            _read(table[: len(ids)], kept, at, first, sums, ids)
            tables.append(table)
        return jax.tree.unflatten(self._structure, tables)

    def write(self, ids: Ids, rows: Tree) -> None:
        """Replace the rows of some clients."""
        at, many = self.at[ids], len(self.at)
        if self._safe:
            other = np.where(at == NOWHERE, ids, (at + many) % (2 * many))
            at = np.where(at == self._kept_at[ids], other, at)
        else:
            at = ids
        leaves = jax.tree.leaves(rows)
        for kept, own, sums in zip_longest(self._kept, leaves, self._sums):
            kept.write(at, own)
            if sums is not None:
                sums[ids] = checksums(own)
        self.at[ids] = at

    def flush(self) -> None:
        """See to it that what was written survives this machine."""
        for kept in self._kept:
            kept.flush()

    def where(self) -> Tree:
        """What a checkpoint must hold: of two places, which is whose, and checksums."""
        return (self.at // len(self.at)).astype(np.int8), self._sums

    def keep(self, where: Tree) -> None:
        """Take this for what the newest checkpoint says."""
        place, sums = where
        self.at = places(place)
        self._kept_at, self._sums = self.at.copy(), sums.copy()


def check_rows(folder: Path, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[Path, str]]:
    """Give every file of rows of a checkpoint, and what is wrong with it, if anything.

    `arrays` is what the checkpoint has: of memory on the device, no files.
    """
    place, sums = (arrays.get(f"['state'].gradients_done[{k}]") for k in range(2))
    if place is None or sums is None:
        return
    at = places(place)
    for number, own in enumerate(sums):
        path = folder / NAME.format(number)
        if not path.is_file() or path.stat().st_size % (2 * len(at)):
            yield path, "it is missing or of another size"
            continue
        shape = 2 * len(at), path.stat().st_size // (2 * len(at))
        array = np.memmap(path, np.uint8, "r", shape=shape)
        rows = Rows(Leaf(array, None, path, AGAIN), at, array[0], own)
        some = max(1, AT_ONCE // shape[1])
        try:
            for start in range(0, len(at), some):
                rows[start : start + some]
            yield path, ""
        except Damaged as error:
            yield path, str(error)


def places(place: np.ndarray) -> Ids:
    """Where rows are, by which of their two places it is."""
    at = np.arange(len(place)) + len(place) * place.astype(int)
    return np.where(place == NOWHERE, NOWHERE, at)


def _read(out: np.ndarray, kept: Leaf, at: Ids, first: Row, sums: Sums | None, whose: Ids) -> None:
    """Read the rows of clients at their places, and check what has checksums."""
    here = at != NOWHERE
    there = out if here.all() else np.empty((here.sum(), *first.shape), first.dtype)
    kept.read(at[here], there)
    if sums is not None:
        kept.check(there, sums[whose[here]], whose[here])
    if there is not out:
        out[here], out[~here] = there, first

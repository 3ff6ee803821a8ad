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

import math
import os
import weakref
import zlib
from collections.abc import Iterator, Mapping
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
    """Give the CRC-32 of every row."""
    table = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    return np.array([zlib.crc32(row.data) for row in table.view(np.uint8)], np.uint32)


class Column:
    """One leaf of all rows there are: an array, which may be the map of a file."""

    def __init__(self, array: np.ndarray, file: Any = None, path: Path = Path(), advice: str = ""):
        """`path` names the file; `advice` says what to do if it is damaged."""
        self.array, self._file, self._path, self._advice = array, file, path, advice
        self._size = array[0].nbytes
        self._past_the_map = file is not None and self._size >= LARGE
        if file is not None:
            weakref.finalize(self, file.close)

    def read(self, places: Ids, out: np.ndarray) -> None:
        """Copy some rows."""
        if not self._past_the_map:
            np.take(self.array, places, 0, out, "clip")  # any other mode copies twice
            return
        for place, row in zip(places.tolist(), out, strict=True):
            if os.preadv(self._file.fileno(), [row], place * self._size) != self._size:
                raise OSError(f"could not read all of row {place}")

    def write(self, places: Ids, rows: np.ndarray) -> None:
        """Replace some rows; raise OSError if the disk is full."""
        if self._file is None or not (self._past_the_map or self._is_tight(rows)):
            self.array[places] = rows
            return
        with files.named(self._path):
            for place, row in zip(places.tolist(), rows, strict=True):
                if os.pwrite(self._file.fileno(), row.data, place * self._size) != self._size:
                    raise OSError(f"could not write all of row {place}")

    def _is_tight(self, rows: np.ndarray) -> bool:
        """Whether the disk might have no room for these: one that is full is an error
        past the map; through it, the system ends the process without a word."""
        disk = os.fstatvfs(self._file.fileno())
        return disk.f_bavail * disk.f_frsize < ROOM + 2 * rows.nbytes

    def check(self, rows: np.ndarray, sums: Sums, clients: Ids) -> None:
        """Raise Damaged unless rows of a file have the checksums that they should."""
        wrong = clients[checksums(rows) != sums]
        if len(wrong):
            raise files.Damaged(
                f"{self._path} is damaged, or of another time than its checkpoint: "
                f"{len(wrong)} of {len(clients)} rows are not as they were written, the "
                f"first that of client {wrong[0]}; {self._advice}."
            )

    def flush(self) -> None:
        """See to it that what was written survives this machine."""
        if self._file is not None:
            with files.named(self._path):
                self.array.flush()  # type: ignore[attr-defined]
                os.fsync(self._file.fileno())


class Rows:
    """One leaf of everybody's memory, left where it is and not to be written to.

    rows[ids] reads the rows of some clients, np.asarray(rows) those of all.
    """

    def __init__(self, column: Column, places: Ids, first: Row, sums: Sums | None):
        self._column, self._places, self._first, self._sums = column, places, first, sums
        self.shape, self.dtype = (len(places), *first.shape), first.dtype
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, ids: Any) -> np.ndarray:
        clients = np.arange(len(self))[ids]
        out = np.empty((clients.size, *self._first.shape), self.dtype)
        self.read(clients.ravel(), out)
        return out.reshape(*clients.shape, *self._first.shape)

    def read(self, clients: Ids, out: np.ndarray) -> None:
        """Copy the rows of some clients, after a check of those that have checksums."""
        places = self._places[clients]
        is_here = places != NOWHERE
        rows = out if is_here.all() else np.empty((is_here.sum(), *out.shape[1:]), out.dtype)
        self._column.read(places[is_here], rows)
        if self._sums is not None:
            self._column.check(rows, self._sums[clients[is_here]], clients[is_here])
        if rows is not out:
            out[is_here], out[~is_here] = rows, self._first

    def copy(self) -> "Rows":
        """Give these rows as they are now: those in a `Store` change."""
        sums = None if self._sums is None else self._sums.copy()
        return Rows(self._column, self._places.copy(), self._first, sums)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("these rows are not one array; they must be copied.")
        return np.asarray(self[:], dtype)

    def __repr__(self) -> str:
        return f"Rows(shape={self.shape}, dtype={self.dtype})"


class Store:
    """The memory of all clients, a row per leaf and client.

    Args:
        first: a client's row before it has taken part.
        num_clients: how many there are.
        on_disk: in files; else in the memory of the host.
        folder: of the files; None: the system's temporary one.
        is_named: files stay in the folder, with two places per client; others vanish
            with the last array.
        is_resumed: the files are there already.
        writers: how many clients will be written at most.
    """

    def __init__(
        self,
        first: Tree,
        num_clients: int,
        on_disk: bool,
        folder: str | Path | None = None,
        is_named: bool = False,
        is_resumed: bool = False,
        writers: int = 0,
    ):
        self.places = np.full(num_clients, NOWHERE)
        self._safe_places, self._is_named = self.places.copy(), is_named
        leaves, self._structure = jax.tree.flatten(jax.tree.map(np.asarray, first))
        self._sums = np.zeros((len(leaves) if on_disk else 0, num_clients), np.uint32)
        count = (1 + is_named) * num_clients
        if on_disk:
            folder = Path(gettempdir() if folder is None else folder).expanduser()
            # What is resumed was there when it began.
            rows = 0 if is_resumed else (1 + is_named) * writers
            self._columns = map_columns(folder, count, leaves, rows, is_named, is_resumed)
        else:  # zeros cost nothing until they are written to
            self._columns = [Column(np.zeros((count, *row.shape), row.dtype)) for row in leaves]
        each = zip_longest(self._columns, leaves, self._sums)
        self._rows = [Rows(column, self.places, row, sums) for column, row, sums in each]

    def rows(self) -> Tree:
        """Everybody's memory as it is now, leaf by leaf, without reading it."""
        return jax.tree.unflatten(self._structure, [rows.copy() for rows in self._rows])

    def read(self, ids: Ids, size: int | None = None) -> Tree:
        """Copy the rows of some clients into tables of so many rows."""
        tables = []
        for rows in self._rows:
            table = np.zeros((size or len(ids), *rows.shape[1:]), rows.dtype)
            rows.read(ids, table[: len(ids)])
            tables.append(table)
        return jax.tree.unflatten(self._structure, tables)

    def write(self, ids: Ids, rows: Tree) -> None:
        """Replace the rows of some clients."""
        places, many = ids, len(self.places)
        if self._is_named:
            places = self.places[ids]
            other = np.where(places == NOWHERE, ids, (places + many) % (2 * many))
            places = np.where(places == self._safe_places[ids], other, places)
        each = zip_longest(self._columns, jax.tree.leaves(rows), self._sums)
        for column, leaf, sums in each:
            column.write(places, leaf)
            if sums is not None:
                sums[ids] = checksums(leaf)
        self.places[ids] = places

    def flush(self) -> None:
        """See to it that what was written survives this machine."""
        for column in self._columns:
            column.flush()

    def index(self) -> Tree:
        """Give what a checkpoint must hold: of two places, which is whose, and checksums."""
        return (self.places // len(self.places)).astype(np.int8), self._sums

    def set_index(self, index: Tree) -> None:
        """Take this for what the newest checkpoint says."""
        halves, sums = index
        self.places[:], self._sums[:] = places_of(halves), sums
        self._safe_places = self.places.copy()


def map_columns(
    folder: Path, count: int, leaves: list[Row], writes: int, is_named: bool, is_resumed: bool
) -> list[Column]:
    """Map a file of so many rows per leaf.

    Raise ValueError if the disk is too small for the rows that may be written: a process
    that writes to a full one through a map is ended by the system.
    """
    columns: list[Column] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_named and not is_resumed:  # what a run left that was never kept
            for old in folder.glob(NAME.format("*")):
                old.unlink()
        need, free = writes * sum(row.nbytes for row in leaves), disk_usage(folder).free
        if need > free:
            raise ValueError(
                f"what clients remember may take {need / 2**30:.3g} GiB, and the disk "
                f"of {folder} has {free / 2**30:.3g} GiB left. Use a folder on another."
            )
        for number, row in enumerate(leaves):
            path, size = folder / NAME.format(number), count * row.nbytes
            if not is_resumed:
                file: Any = open(path, "w+b") if is_named else TemporaryFile(dir=folder)
                file.truncate(size)  # all of it a hole
            elif not path.exists() or path.stat().st_size != size:
                raise ValueError(
                    f"the checkpoint in {folder} needs {path.name}, which is missing or of "
                    f"another size; {AGAIN}."
                )
            else:
                file = open(path, "r+b")
            array = np.memmap(file, row.dtype, "r+", shape=(count, *row.shape))
            if is_named:
                columns.append(Column(array, file, path, AGAIN))
            else:
                columns.append(
                    Column(array, file, folder, "run it again with another state_folder")
                )
    except OSError as error:
        raise ValueError(
            "clients' memory must be in a folder that can be written to; "
            f"got {folder}: {error.strerror}."
        ) from None
    return columns


def check_rows(folder: Path, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[Path, str]]:
    """Give every file of rows of a checkpoint, and what is wrong with it, if anything.

    `arrays` is what the checkpoint has: of memory on the device, no files.
    """
    halves, sums = (arrays.get(f"['state'].gradients_done[{k}]") for k in range(2))
    if halves is None or sums is None:
        return
    places = places_of(halves)
    for number, column_sums in enumerate(sums):
        path = folder / NAME.format(number)
        if not path.is_file() or path.stat().st_size % (2 * len(places)):
            yield path, "it is missing or of another size"
            continue
        shape = 2 * len(places), path.stat().st_size // (2 * len(places))
        array = np.memmap(path, np.uint8, "r", shape=shape)
        rows = Rows(Column(array, None, path, AGAIN), places, array[0], column_sums)
        at_once = max(1, AT_ONCE // shape[1])
        try:
            for start in range(0, len(places), at_once):
                rows[start : start + at_once]
            yield path, ""
        except Damaged as error:
            yield path, str(error)


def places_of(halves: np.ndarray) -> Ids:
    """Give the place of every client's row, by which of its two places that is."""
    places = np.arange(len(halves)) + len(halves) * halves.astype(int)
    return np.where(halves == NOWHERE, NOWHERE, places)

"""The server's database: the only truth of a job.

One SQLite file holds the server's state and every site's state under a version that
names its content. With WAL and FULL a commit is on disk when it returns, and a crash
leaves the last commit. States are BLOBs: as files beside the database, a round of four
sites took 3 times as long to write at 550,000 numbers and 8 times at 100.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from focusfl.core.files import make_folder, take_lock
from focusfl.flower.protocol.messages import digest

FORMAT = 1
SEALED, DIGITS = {"server", "initial", "state"}, 32  # columns, and their checksums
HERE, LEFT, BARRED = "here", "left", "barred"  # barred: left out until a restart

SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    format INTEGER, identity TEXT, settings TEXT, generation INTEGER, round INTEGER,
    warming INTEGER, largest REAL, server BLOB, initial BLOB
);
CREATE TABLE IF NOT EXISTS sites (
    name TEXT PRIMARY KEY, weight REAL, status TEXT, version TEXT, state BLOB,
    norm REAL, grads_done INTEGER, pushes INTEGER
);
CREATE INDEX IF NOT EXISTS norms ON sites (status, norm);
CREATE INDEX IF NOT EXISTS pushers ON sites (status, pushes);
"""


class JobRow(NamedTuple):
    """The job's own row."""

    format: int
    identity: str  # what it is: algorithm, sites, weights
    settings: str  # what it is run with, which may not change unasked
    generation: int  # 1, and one more each time that all states were emptied
    round: int  # how many are closed
    warming: int  # whether everybody must be heard before the next round
    largest: float  # norm of the largest push since the sums were computed
    server: bytes  # the algorithm's state
    initial: bytes  # the state of a site that has pushed nothing in this generation


class SiteRow(NamedTuple):
    """What is known of one site."""

    name: str
    weight: float
    status: str
    version: str  # names the content of its state
    state: bytes | None  # None: the initial one, or held by the site alone
    norm: float  # of the state
    grads_done: int  # gradients it has computed up to this version
    pushes: int  # counted in this generation


def check(path: Path) -> None:
    """Raise ValueError if a database is damaged; nobody may have it open."""
    store = Store(path)
    try:
        (verdict,) = store.db.execute("PRAGMA quick_check").fetchone()
        if verdict != "ok":
            raise ValueError(f"{path} is damaged: {verdict}.")
        for _ in store.sites(HERE, LEFT, BARRED):
            pass
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
    finally:
        store.close()


def copy(source: Path, target: Path) -> None:
    """Copy a database whole, to make a backup or to restore one.

    The source may be in use; a target that is there is replaced, and may not be.
    """
    for path in (target, Path(f"{target}-wal"), Path(f"{target}-shm")):
        path.unlink(missing_ok=True)  # a log left beside would be read into the copy
    with ExitStack() as stack:
        old, new = (
            stack.enter_context(closing(sqlite3.connect(path))) for path in (source, target)
        )
        old.backup(new)


class Store:
    """A job's database, which one process at a time may open."""

    def __init__(self, path: Path):
        self.path = path
        make_folder(path.parent, private=True)
        for file in (path, Path(f"{path}.lock")):
            file.touch(0o600)  # for its owner alone
        self._lock = open(f"{path}.lock", "wb")  # held until close
        try:
            if not take_lock(self._lock.fileno()):
                raise ValueError(f"{path} is in use by another process.")
        except BaseException:
            self._lock.close()
            raise
        # Transactions begin and end where this class says, not where the module guesses.
        self.db = sqlite3.connect(path, isolation_level=None)
        try:
            # Pages as large as a small model's state. FULL, as NORMAL may lose the last
            # commits when the power fails: sites would be ahead of their server.
            self.db.executescript(
                "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL;"
                "PRAGMA synchronous = FULL;" + SCHEMA
            )
            self.job()
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            raise ValueError(f"{path} is damaged or no job: {error}") from None

    def close(self) -> None:
        """Drop what is not committed, and let another process have the job."""
        self.db.close()
        self._lock.close()

    def begin(self) -> None:
        """Begin a transaction unless one is under way."""
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Put all changes on disk."""
        if self.db.in_transaction:
            self.db.execute("COMMIT")

    def rollback(self) -> None:
        """Drop all changes since the last commit."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def create(self, job: JobRow, sites: Sequence[SiteRow]) -> None:
        """Write a new job, in one transaction."""
        self.begin()
        for table, rows in (("job", [job]), ("sites", sites)):
            marks = ", ".join("?" * len(rows[0]))
            sealed = [list(_sealed(row._asdict()).values()) for row in rows]
            self.db.executemany(f"INSERT INTO {table} VALUES ({marks})", sealed)
        self.commit()

    def job(self) -> JobRow | None:
        """The job's row; None if the database is new."""
        row = self.db.execute("SELECT * FROM job").fetchone()
        return None if row is None else self._opened(JobRow(*row))

    def set_job(self, **fields: Any) -> None:
        """Change columns of the job's row."""
        names = ", ".join(f"{name} = ?" for name in fields)
        self.db.execute(f"UPDATE job SET {names}", list(_sealed(fields).values()))

    def site(self, name: str) -> SiteRow | None:
        """One site's row; None if there is no such site."""
        row = self.db.execute("SELECT * FROM sites WHERE name = ?", [name]).fetchone()
        return None if row is None else self._opened(SiteRow(*row))

    def sites(self, *status: str) -> Iterator[SiteRow]:
        """Rows of all sites of this status, in the order of the job."""
        marks = ", ".join("?" * len(status))
        query = f"SELECT * FROM sites WHERE status IN ({marks}) ORDER BY rowid"
        for row in self.db.execute(query, status):
            yield self._opened(SiteRow(*row))

    def column(self, name: str, *status: str) -> dict[str, Any]:
        """One column of all sites of this status, by name."""
        marks = ", ".join("?" * len(status))
        query = f"SELECT name, {name} FROM sites WHERE status IN ({marks})"
        return dict(self.db.execute(query + " ORDER BY rowid", status).fetchall())

    def set_site(self, name: str, expected: str | None, /, **fields: Any) -> bool:
        """Change columns of a site's row, if it still has the version expected.

        Returns:
            Whether it had: this is the compare and swap by which replies count.
        """
        names = ", ".join(f"{column} = ?" for column in fields)
        cursor = self.db.execute(
            f"UPDATE sites SET {names} WHERE name = ? AND version = coalesce(?, version)",
            [*_sealed(fields).values(), name, expected],
        )
        return cursor.rowcount == 1

    def set_sites(self, **fields: Any) -> None:
        """Change columns of all sites' rows."""
        names = ", ".join(f"{name} = ?" for name in fields)
        self.db.execute(f"UPDATE sites SET {names}", list(fields.values()))

    def _opened(self, row: Any) -> Any:
        """A row without checksums; ValueError if one does not match."""
        fields = {}
        for name in SEALED & {*row._fields}:
            if value := getattr(row, name):
                known, fields[name] = value[:DIGITS], value[DIGITS:]
                if known != digest(fields[name]).encode():
                    raise ValueError(f"{self.path} is damaged: {name}, {row[0]}.")
        return row._replace(**fields)

    def largest_norm(self) -> float:
        """The norm of the largest state of a site that is here."""
        query = "SELECT max(norm) FROM sites WHERE status = ?"
        return self.db.execute(query, [HERE]).fetchone()[0] or 0.0

    def has_pushed(self, except_for: str) -> bool:
        """Whether any other site that is here has pushed in this generation."""
        query = "SELECT 1 FROM sites WHERE pushes > 0 AND status = ? AND name != ?"
        rows = self.db.execute(query + " LIMIT 1", [HERE, except_for])
        return rows.fetchone() is not None


def _sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Columns with checksums before arrays: SQLite would not see a flipped bit."""
    return {
        name: digest(value).encode() + value if name in SEALED and value else value
        for name, value in fields.items()
    }


def as_json(fields: Mapping[str, Any]) -> str:
    """A table as text that is the same for the same content."""
    return json.dumps(fields, sort_keys=True)

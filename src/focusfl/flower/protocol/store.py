"""The server's database: the only truth of a job.

One SQLite file holds the server's state and every site's state under a version that
names its content. With WAL and FULL a commit is on disk when it returns, and a crash
leaves the last commit. States are BLOBs: as files beside the database, a round of four
sites took 3 times as long to write at 550,000 numbers and 8 times at 100.
"""

import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from focusfl.core.files import make_folder, take_lock
from focusfl.flower.protocol.messages import digest

FORMAT = 1
SEALED, DIGITS = {"server", "initial", "state"}, 32  # columns, and their checksums
HERE, LEFT, BARRED = "here", "left", "barred"  # barred: left out until a restart


class JobRow(NamedTuple):
    """The one row of the table `job`."""

    identity: str  # JSON of algorithm, sites, weights
    settings: str  # JSON of what it is run with, which may not change unasked
    server: bytes  # the algorithm's state
    initial: bytes  # the state of a site that has pushed nothing in this generation
    warming: bool  # whether everybody must be heard before the next round
    generation: int = 1  # one more each time that all states were emptied
    round: int = 0  # how many are closed
    largest: float = 0.0  # norm of the largest push since the sums were computed
    format: int = FORMAT


class SiteRow(NamedTuple):
    """A row of the table `sites`."""

    name: str
    weight: float
    version: str  # another after every push: the digest of its header; at first of the state
    status: str = HERE
    state: bytes | None = None  # None: the initial one, or kept by the site alone
    norm: float = 0.0  # of the state
    grads_done: int = 0  # gradients it has computed up to this version
    pushes: int = 0  # counted in this generation


SCHEMA = f"""
CREATE TABLE IF NOT EXISTS job ({", ".join(JobRow._fields)});
CREATE TABLE IF NOT EXISTS sites ({", ".join(SiteRow._fields)}, PRIMARY KEY (name));
CREATE INDEX IF NOT EXISTS norms ON sites (status, norm);
CREATE INDEX IF NOT EXISTS pushers ON sites (status, pushes);
"""
# SQLite's names for the types of columns.
_TYPES = {str: "text", bytes: "blob", int: "integer", bool: "integer", type(None): "null"}


def _wrong(table: str, row: type) -> str:
    """Write the query for how many rows have a value that this module never wrote: SQLite
    takes any type for any column."""
    rules = []
    for name, kind in row.__annotations__.items():
        kinds = [_TYPES.get(each, "real") for each in get_args(kind) or (kind,)]
        names = ", ".join(f"'{each}'" for each in (*kinds, *["integer"] * ("real" in kinds)))
        rules.append(f"typeof({name}) NOT IN ({names})")
        # Nobody writes negative numbers, and an infinite one is above this.
        if {"real", "integer"} & {*kinds}:
            rules.append(f"NOT {name} BETWEEN 0 AND {sys.float_info.max!r}")
    if table == "sites":
        rules.append(f"status NOT IN ('{HERE}', '{LEFT}', '{BARRED}')")
    return f"SELECT count(*) FROM {table} WHERE {' OR '.join(rules)}"


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


class Store:
    """A job's database, which one process at a time may open.

    Args:
        path: of the SQLite file, which is made if there is none, beside PATH.lock.

    Raises:
        ValueError: If the file is damaged, or another process has it open.
    """

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
            for table, row in (("job", JobRow), ("sites", SiteRow)):
                if self.db.execute(_wrong(table, row)).fetchone()[0]:
                    raise ValueError(f"its table {table} holds what no server writes.")
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
        self.db.commit()

    def rollback(self) -> None:
        """Drop all changes since the last commit."""
        self.db.rollback()

    def create(self, job: JobRow, sites: Sequence[SiteRow]) -> None:
        """Write a new job, in one transaction."""
        self.begin()
        for table, rows in (("job", [job]), ("sites", sites)):
            marks = ", ".join("?" * len(rows[0]))
            sealed = [list(_sealed(row._asdict()).values()) for row in rows]
            self.db.executemany(f"INSERT INTO {table} VALUES ({marks})", sealed)
        self.commit()

    def job(self) -> JobRow | None:
        """Read the job's row; None if the database is new."""
        row = self.db.execute("SELECT * FROM job").fetchone()
        return None if row is None else self._opened(JobRow(*row))

    def set_job(self, **fields: Any) -> None:
        """Change columns of the job's row."""
        self._update("job", fields)

    def site(self, name: str) -> SiteRow | None:
        """Read a site's row; None if there is no such site."""
        row = self.db.execute("SELECT * FROM sites WHERE name = ?", [name]).fetchone()
        return None if row is None else self._opened(SiteRow(*row))

    def sites(self, *status: str) -> Iterator[SiteRow]:
        """Read the rows of all sites with one of these statuses, in the order of the job."""
        marks = ", ".join("?" * len(status))
        query = f"SELECT * FROM sites WHERE status IN ({marks}) ORDER BY rowid"
        for row in self.db.execute(query, status):
            yield self._opened(SiteRow(*row))

    def column(self, name: str, *status: str) -> dict[str, Any]:
        """Read one column of all sites with one of these statuses, by site."""
        marks = ", ".join("?" * len(status))
        query = f"SELECT name, {name} FROM sites WHERE status IN ({marks})"
        return dict(self.db.execute(query + " ORDER BY rowid", status).fetchall())

    def set_site(self, name: str, expected: str | None, /, **fields: Any) -> bool:
        """Change columns of a site's row: the compare and swap by which replies count.

        Args:
            name: of the site.
            expected: the version that the row must have; None: any.
            fields: new values by column.

        Returns:
            Whether the row had the version expected. If not, nothing has changed.
        """
        where = "WHERE name = ? AND version = coalesce(?, version)"
        return self._update("sites", fields, where, name, expected) == 1

    def set_sites(self, **fields: Any) -> None:
        """Change columns of all sites' rows."""
        self._update("sites", fields)

    def largest_norm(self) -> float:
        """Give the norm of the largest state of a site that is here."""
        query = "SELECT max(norm) FROM sites WHERE status = ?"
        return self.db.execute(query, [HERE]).fetchone()[0] or 0.0

    def has_pushed(self, except_for: str) -> bool:
        """Say whether any other site that is here has pushed in this generation."""
        query = "SELECT 1 FROM sites WHERE pushes > 0 AND status = ? AND name != ?"
        rows = self.db.execute(query + " LIMIT 1", [HERE, except_for])
        return rows.fetchone() is not None

    def _update(self, table: str, fields: Mapping[str, Any], where: str = "", *values: Any) -> int:
        """Change columns of rows; give how many rows there were."""
        names = ", ".join(f"{name} = ?" for name in fields)
        query = f"UPDATE {table} SET {names} {where}"
        return self.db.execute(query, [*_sealed(fields).values(), *values]).rowcount

    def _opened(self, row: Any) -> Any:
        """Take the checksums off a row; ValueError if one does not match."""
        fields = {}
        for name in SEALED & {*row._fields}:
            if (value := getattr(row, name)) is not None:
                checksum, fields[name] = value[:DIGITS], value[DIGITS:]
                if checksum != digest(fields[name]).encode():
                    raise ValueError(f"{self.path} is damaged: {name}, {row[0]}.")
        return row._replace(**fields)


def _sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Put checksums before arrays: SQLite would not see a flipped bit."""
    return {
        name: digest(value).encode() + value if name in SEALED and value is not None else value
        for name, value in fields.items()
    }

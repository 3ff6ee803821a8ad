"""A line for every site: a mapping that never changes, over columns that do.

Ten sites or a million, a push moves one line, and nobody walks over the others.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from focusfl.engines.protocol.format import Refused
from focusfl.engines.protocol.ledger import BARRED, GONE, Entry

LINE = np.dtype(
    [
        ("applied", "<i8"), ("digest", "V16"), ("grads_done", "<i8"), ("round", "<i8"),
        ("pushes", "<i4"), ("losses", "<u2"), ("flags", "u1"),
    ],
    align=True,
)  # fmt: skip
NAMED = 4  # a flag beside GONE and BARRED: there is a checksum
NOWHERE = 0  # the round of who was counted in none that is over
FIRST = 2  # that of who was counted in round 0; there is one before it
MOST_LOSSES = 2**16 - 1  # more of them are no worse
READ = 1 << 14  # entries read from lines that are held at a time


class Roster:
    """Who takes part in a job, by name and by number."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.numbers = dict(zip(self.names, range(len(self.names)), strict=True))


class Block(NamedTuple):
    """Some lines as they are written, and the rounds that they name."""

    rounds: Sequence[Sequence[Any]]
    lines: dict[str, np.ndarray]  # "line": bytes; "site": whose, if not everybody's


class _Table:
    """Lines, and beside them the entries that were read or changed of late."""

    def __init__(self, roster: Roster):
        self.roster = roster
        self.lines = np.zeros(len(roster.names), LINE)
        self.rounds: dict[int, tuple] = {}  # that lines name, and perhaps more
        self.held: dict[int, Entry] = {}
        self.changed: set[int] | None = None  # since they were written; None: all
        self.files: tuple[str, ...] = ()  # in which the others are

    def get(self, i: int) -> Entry:
        if (entry := self.held.get(i)) is None:
            if len(self.held) >= READ:
                self.held.clear()
            applied, digest, grads, number, pushes, losses, flags = self.lines[i].item()
            entry = self.held[i] = Entry(
                applied,
                digest.hex() if flags & NAMED else "",
                () if number == NOWHERE else self.rounds[number],
                grads,
                bool(flags & GONE),
                bool(flags & BARRED),
                losses,
                pushes,
            )
        return entry

    def put(self, i: int, entry: Entry) -> None:
        if len(self.held) >= READ:
            self.held.clear()
        self.held[i], self.lines[i] = entry, self._line(entry)
        if self.changed is not None:
            self.changed.add(i)
        self._forget()

    def put_round(self, numbers: Sequence[int], told: tuple) -> None:
        """Have all these be counted in a round."""
        self.rounds[told[0] + FIRST] = told
        self.lines["round"][[*numbers]] = told[0] + FIRST
        for i in numbers:
            self.held.pop(i, None)
        if self.changed is not None:
            self.changed.update(numbers)
        self._forget()

    def _forget(self) -> None:
        """Leave out rounds that no line names, if there are many."""
        if len(self.rounds) > 2 * len(self.lines) + 100:
            used = np.unique(self.lines["round"]).tolist()
            self.rounds = {n: self.rounds[n] for n in used if n != NOWHERE}

    def _line(self, entry: Entry) -> tuple:
        number = NOWHERE
        if entry.counted_in:
            number = entry.counted_in[0] + FIRST
            self.rounds[number] = entry.counted_in
        flags = GONE * entry.gone | BARRED * entry.barred | NAMED * bool(entry.digest)
        return (
            entry.applied, bytes.fromhex(entry.digest) or bytes(16), entry.grads_done,
            number, entry.pushes, min(entry.losses, MOST_LOSSES), flags,
        )  # fmt: skip


class Entries(Mapping[str, Entry]):
    """Everybody's entry. `entries | {site: entry}` is another such value.

    The lines are those of the newest value. An older one knows what the next has
    changed, and takes the lines back should it be read: right, if slower.
    """

    def __init__(self, roster: Roster, table: _Table | None = None):
        self._table = table or _Table(roster)
        self._next: tuple[Entries, dict[int, Entry]] | None = None  # and what was here

    def _own(self) -> _Table:
        """The lines, as they are in this value."""
        later = [self]
        while (link := later[-1]._next) is not None:
            later.append(link[0])
        for older, newer in zip(later[-2::-1], later[:0:-1], strict=True):
            assert older._next is not None
            older._swap(newer, older._next[1])
            older._next = None
        return self._table

    def _swap(self, other: "Entries", entries: dict[int, Entry]) -> None:
        """Take the lines from another value, which differs by these entries."""
        other._next = self, {i: self._table.get(i) for i in entries}
        for i, entry in entries.items():
            self._table.put(i, entry)

    def __getitem__(self, site: str) -> Entry:
        table = self._own()
        return table.get(table.roster.numbers[site])

    def __contains__(self, site: object) -> bool:
        return site in self._table.roster.numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.roster.names)

    def __len__(self) -> int:
        return len(self._table.lines)

    def __or__(self, changes: Mapping[str, Entry]) -> "Entries":
        numbers = self._own().roster.numbers
        after = Entries(self._table.roster, self._table)
        after._swap(self, {numbers[site]: entry for site, entry in changes.items()})
        return after

    def with_counted_in(self, sites: Sequence[str], told: tuple) -> "Entries":
        """Another such value: the pushes of these were counted in a round."""
        table, numbers = self._own(), self._table.roster.numbers
        which = [numbers[site] for site in sites]
        after = Entries(table.roster, table)
        self._next = after, {i: table.get(i) for i in which}
        table.put_round(which, told)
        return after

    def new_epoch(self, lost: Collection[str]) -> "Entries":
        """Nothing is counted of anybody; these have lost their memory once more."""
        lines, after = self._own().lines, Entries(self._table.roster)
        table = after._table
        table.lines["grads_done"] = lines["grads_done"]
        table.lines["losses"] = lines["losses"]
        table.lines["flags"] = lines["flags"] & (GONE | BARRED)
        return after | {
            site: entry._replace(losses=entry.losses + 1)
            for site, entry in ((site, after[site]) for site in lost)
        }

    # What is true of some of them.

    def flagged(self, flag: int) -> tuple[str, ...]:
        """Who is GONE, or BARRED."""
        names = self._table.roster.names
        which = np.flatnonzero(self._own().lines["flags"] & flag)
        return tuple(names[i] for i in which.tolist())

    def any_gone(self, sites: Sequence[str]) -> bool:
        """Whether one of these has left for good."""
        table, numbers = self._own(), self._table.roster.numbers
        which = [numbers[site] for site in sites]
        return bool((table.lines["flags"][which] & GONE).any())

    @property
    def applied(self) -> dict[str, int]:
        """The number of everybody's push that was counted last."""
        lines = self._own().lines
        return dict(zip(self, lines["applied"].tolist(), strict=True))

    @property
    def newcomers(self) -> bool:
        """Whether somebody was not counted in this epoch."""
        return not self._own().lines["applied"].all()

    @property
    def missing(self) -> bool:
        """Whether somebody who has not left was not counted in this epoch."""
        lines = self._own().lines
        return bool((lines["applied"][lines["flags"] & GONE == 0] == 0).any())

    @property
    def num_here(self) -> int:
        """How many have not left."""
        return int((self._own().lines["flags"] & GONE == 0).sum())

    @property
    def rounds(self) -> set[int]:
        """The rounds, of those that are over, in which somebody was counted last."""
        numbers = np.unique(self._own().lines["round"]).tolist()
        return {number - FIRST for number in numbers if number != NOWHERE}

    # On disk.

    @property
    def changed(self) -> set[int] | None:
        """Whose lines are not in the files below as they are now; None: everybody's."""
        return self._own().changed

    @property
    def files(self) -> tuple[str, ...]:
        """The files in which the other lines are."""
        return self._own().files

    def written(self, files: tuple[str, ...]) -> None:
        """Note that all lines are in these files now."""
        table = self._own()
        table.files, table.changed = files, set()

    def block(self, which: Collection[int] | None) -> Block:
        """Some lines, by numbers; None: all."""
        lines = self._own().lines
        own: dict[str, np.ndarray] = {}
        if which is not None:
            own["site"] = np.sort(np.fromiter(which, "<i4", len(which)))
            lines = lines[own["site"]]
        numbers = np.unique(lines["round"]).tolist()
        rounds = [self._table.rounds[n] for n in numbers if n != NOWHERE]
        raw = lines.view("u1").reshape(len(lines), LINE.itemsize)
        return Block(rounds, {"line": raw, **own})

    @classmethod
    def read(cls, roster: Roster, files: Mapping[str, Block], last: Block) -> "Entries":
        """What was written: the lines in these files, and those in the last block."""
        entries = cls(roster)
        table = entries._table
        for block in (*files.values(), last):
            _check(block, len(roster.names))
            raw = np.ascontiguousarray(block.lines["line"])
            which: Any = block.lines.get("site", slice(None))
            table.lines[which] = raw.reshape(-1).view(LINE)
            table.rounds |= {told[0] + FIRST: tuple(told) for told in block.rounds}
        if files and "site" in last.lines:
            table.files = tuple(files)
            table.changed = {*last.lines["site"].tolist()}
        if not {*np.unique(table.lines["round"]).tolist()} <= {NOWHERE, *table.rounds}:
            raise Refused("its lines name rounds that it does not have.")
        return entries


def _check(block: Block, sites: int) -> None:
    """Raise Refused unless these can be lines of so many sites."""
    line, site = block.lines["line"], block.lines.get("site", np.arange(sites))
    if line.dtype != "u1" or line.shape != (len(site), LINE.itemsize):
        raise Refused(f"its lines are {line.dtype} of shape {line.shape}.")
    if len(site) and not 0 <= site.min() <= site.max() < sites:
        raise Refused(f"its lines are of other sites than {sites}.")

"""The server's ledger on disk: one file, the one before it, and lines beside them.

The ledger of few sites is one file, replaced whole by every commit. Of many, it holds
the lines that have changed of late, and names files with the others: a name is the
checksum of what is in it, and what it names is on disk before it is. No file is ever
written to again; one that nothing names any more is removed.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from focusfl.core import Client
from focusfl.engines.protocol import files
from focusfl.engines.protocol.entries import Block, Entries, Roster
from focusfl.engines.protocol.format import (
    Fields,
    Header,
    Refused,
    Wired,
    check_fields,
    check_leaves,
    encode,
    header,
    pack,
    restore,
    unpack,
)
from focusfl.engines.protocol.ledger import Ledger
from focusfl.engines.protocol.magnitude import Reach

log = logging.getLogger(__name__)

MOST = 8192  # lines in a ledger itself


class Read(NamedTuple):
    """What was read of a ledger: as it was written, and nobody's yet."""

    head: Header
    trees: dict[str, Any]
    files: dict[str, Block]  # lines, by the names of the files that hold them


class Books:
    """The ledgers of one job; the one before the last takes its place, if need be."""

    def __init__(self, path: Path, identity: Fields):
        self.path, self._identity = path, identity
        self._before = path.with_name("server.1.ledger")
        self._most = MOST
        self._named: tuple[str, ...] = ()  # by the last ledger: files of lines
        self._sound = True  # what is there may be kept
        self.notice = ""  # what was wrong when they were opened

    def load(self, new: Ledger, like: Client, roster: Roster) -> Ledger | None:
        """The last ledger; None if there is none, Refused if it cannot be read.

        If it is damaged, the one before it: a server from a backup, which sites will
        tell what it does not know.
        """
        try:
            read = self._read(self.path)
        except Refused as error:
            if not self._before.exists():
                raise
            try:
                read = self._read(self._before)
            except Refused as other:
                raise Refused(f"{error} Nor from the one before it: {other}") from None
            self._sound = False
            self.notice = f"{error} Going on from the one before it, {self._before}."
            log.error("%s", self.notice)
        if read is None:
            return None
        self._named = tuple(read.files)
        return decode_ledger(read, self._identity, new, like, roster)

    def _read(self, path: Path) -> Read | None:
        wired = files.load(path)
        if wired is None:
            if path == self.path and self._before.exists():
                raise Refused(f"{path} is missing.")
            return None
        head = header(wired, own=True)
        named = head.fields.get("files", [])
        lines = {name: self._read_lines(name) for name in named}
        return Read(head, unpack(wired, head), lines)

    def _read_lines(self, name: str) -> Block:
        wired = files.load(self._lines(name))
        if wired is None:
            raise Refused(f"{self._lines(name)} is missing.")
        head = header(wired, own=True)
        check_fields(head.fields, kind=str, rounds=list)
        if head.digest != name:
            raise Refused(f"{self._lines(name)} is another one.")
        return Block(head.fields["rounds"], unpack(wired, head)["lines"])

    def save(self, ledger: Ledger) -> None:
        """Write a ledger; when this returns, it is on disk.

        Raises:
            ValueError: If there is a number in it that is not finite.
        """
        entries = ledger.entries
        named, rest = entries.files, entries.changed
        if len(entries) <= self._most:
            named, rest = (), None
        elif rest is None or len(rest) > self._most:
            named, rest = self._write_lines(entries), set()
        wired = encode_ledger(ledger, self._identity, named, entries.block(rest))
        files.save(self.path, wired, self._before if self._sound else None)
        self._sound = True
        if named != entries.files:
            entries.written(named)
            self._sweep({*named, *self._named})
        self._named = named

    def _write_lines(self, entries: Entries) -> tuple[str, ...]:
        """Write the lines that have changed to a file, or all if there are many."""
        named, which = entries.files, entries.changed
        if which is None or len(named) * self._most > len(entries):
            named, which = (), None
        block = entries.block(which)
        fields = {"kind": "lines", "rounds": block.rounds}
        wired = encode(fields, pack({"lines": block.lines}))
        name = header(wired, own=True).digest
        files.save(self._lines(name), wired)
        return (*named, name)

    def _lines(self, name: str) -> Path:
        return self.path.with_name(f"server.{name}.lines")

    def _sweep(self, named: set[str]) -> None:
        """Remove lines that neither this ledger nor the one before it names."""
        wanted = {self._lines(name) for name in named}
        for pattern in ("server.*.lines", ".part-server.*.lines-*"):
            for path in self.path.parent.glob(pattern):
                if path not in wanted:
                    path.unlink()


def encode_ledger(
    ledger: Ledger, identity: Fields, files: Sequence[str], own: Block
) -> Wired:
    """A ledger as bytes, with what a job must have in common with it.

    Its lines are in these files, and those that have changed since in it.
    """
    fields = {
        **identity, "incarnation": ledger.incarnation, "settings": ledger.settings,
        "epoch": ledger.epoch,
        "round": ledger.round, "clock": ledger.clock, "current": ledger.current,
        "reach": ledger.reach, "spiked": ledger.spiked,
        "counted": ledger.counted, "files": files, "rounds": own.rounds,
    }  # fmt: skip
    sections = {
        "server": ledger.server, "start": ledger.start, "kept": ledger.kept,
        "copies": ledger.copies, "lines": own.lines,
    }  # fmt: skip
    if ledger.counted:
        sections["total"] = ledger.total
    return encode(fields, pack(sections))


def decode_ledger(
    read: Read, identity: Fields, new: Ledger, like: Client, roster: Roster
) -> Ledger:
    """The ledger that was read; raise Refused if it is another job's.

    `new` is the ledger that the job would begin with, `like` a memory of a client.
    """
    fields, trees = read.head.fields, read.trees
    fields.setdefault("weights", {})  # before there were any, all were alike
    if "entries" in fields:
        raise Refused("it is of a time before lines: give the job another name.")
    check_fields(
        fields, **{name: type(value) for name, value in identity.items()},
        incarnation=str, settings=dict, epoch=int, current=int, round=int, clock=int,
        counted=list, files=list, rounds=list, reach=list, spiked=bool,
    )  # fmt: skip
    for name, value in identity.items():
        if fields[name] != value:
            raise Refused(f"its {name} is {fields[name]!r}, not {value!r}.")
    counted = tuple(fields["counted"])
    wanted = {"server": new.server} | ({"total": new.total} if counted else {})
    leaves = read.head.leaves
    check_leaves({p: leaves[p] for p in leaves if p.split("/")[0] in wanted}, wanted)
    copies, own = trees.get("copies", {}), Block(fields["rounds"], trees["lines"])
    return Ledger(
        server=restore(new.server, trees["server"]),
        entries=Entries.read(roster, read.files, own),
        incarnation=fields["incarnation"],
        settings=fields["settings"],
        epoch=fields["epoch"],
        current=fields["current"],
        round=fields["round"],
        clock=fields["clock"],
        total=trees["total"] if counted else new.total,
        counted=counted,
        start=trees.get("start", {}),
        kept=trees.get("kept", {}),
        copies={site: restore(like, memory) for site, memory in copies.items()},
        reach=Reach(*fields["reach"]),
        spiked=fields["spiked"],
    )

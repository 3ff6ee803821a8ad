"""The server's ledger: all that must outlive its process, as one value and as bytes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from focusfl.core import Client, Message, Server
from focusfl.engines.protocol.entries import Block, Entries, Roster
from focusfl.engines.protocol.format import (
    Fields,
    Header,
    Refused,
    Wired,
    check_fields,
    check_leaves,
    encode,
    pack,
    restore,
)
from focusfl.engines.protocol.magnitude import Reach
from focusfl.tree import Tree


class Ledger(NamedTuple):
    """Replaced as a whole, never written to."""

    server: Server
    incarnation: str  # of the server: another one every time that it is started
    settings: dict[str, Any]  # what it was last started with
    entries: Entries
    epoch: int
    current: int  # the open round by its index; -1 is the one before round 0
    round: int  # rounds closed, over all epochs
    clock: int  # the last number given out
    total: Message  # sum of the pushes counted in the open round
    counted: tuple[str, ...]  # whose these are
    start: dict[str, Tree]  # {"x": what the epoch began with} while a site needs it
    kept: dict[str, Message]  # what sites must still be told, by the index of a round
    copies: dict[str, Client]  # sites' memories after their last push, if kept
    reach: Reach
    spiked: bool = False  # a push of the open round is far larger than all before


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


class Read(NamedTuple):
    """What was read of a ledger: as it was written, and nobody's yet."""

    head: Header
    trees: dict[str, Any]
    files: dict[str, Block]  # lines, by the names of the files that hold them


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

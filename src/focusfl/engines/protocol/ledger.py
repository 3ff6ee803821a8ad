"""The server's ledger: all that must outlive its process, as one value and as bytes."""

from typing import Any, NamedTuple

from focusfl.core import Client, Message, Server
from focusfl.engines.protocol.format import (
    Fields,
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
from focusfl.engines.protocol.magnitude import Reach
from focusfl.tree import Tree


class Entry(NamedTuple):
    """What the ledger knows of one site."""

    applied: int = 0  # the push counted last; 0: none in this epoch
    digest: str = ""  # its checksum
    counted: tuple = ()  # the round it was counted in: the scalars of a Round
    grads_done: int = 0  # gradients the site has computed up to then, over all epochs
    gone: bool = False  # it has left for good
    barred: bool = False  # it is left out, until the server is started again
    losses: int = 0  # of its memory, since it was seen to have one
    pushes: int = 0  # counted in this epoch


class Ledger(NamedTuple):
    """Replaced as a whole, never written to."""

    server: Server
    incarnation: str  # of the server: another one every time that it is started
    settings: dict[str, Any]  # what it was last started with
    entries: dict[str, Entry]
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


def encode_ledger(ledger: Ledger, identity: Fields) -> Wired:
    """A ledger as bytes, with what a job must have in common with it."""
    fields = {
        **identity, "incarnation": ledger.incarnation, "settings": ledger.settings,
        "epoch": ledger.epoch,
        "round": ledger.round, "clock": ledger.clock, "current": ledger.current,
        "reach": ledger.reach, "spiked": ledger.spiked,
        "counted": ledger.counted, "entries": ledger.entries,
    }  # fmt: skip
    sections = {
        "server": ledger.server, "start": ledger.start, "kept": ledger.kept,
        "copies": ledger.copies,
    }  # fmt: skip
    if ledger.counted:
        sections["total"] = ledger.total
    return encode(fields, pack(sections))


def decode_ledger(
    message: Wired, identity: Fields, new: Ledger, like: Client
) -> Ledger:
    """The ledger that these bytes are; raise Refused if they are another job's.

    `new` is the ledger that the job would begin with, `like` a memory of a client.
    """
    head = header(message, own=True)
    head.fields.setdefault("weights", {})  # before there were any, all were alike
    check_fields(
        head.fields, **{name: type(value) for name, value in identity.items()},
        incarnation=str, settings=dict, epoch=int, current=int, round=int, clock=int,
        counted=list, entries=dict, reach=list, spiked=bool,
    )  # fmt: skip
    for name, value in identity.items():
        if head.fields[name] != value:
            raise Refused(f"its {name} is {head.fields[name]!r}, not {value!r}.")
    counted = tuple(head.fields["counted"])
    wanted = {"server": new.server} | ({"total": new.total} if counted else {})
    own = {p: leaf for p, leaf in head.leaves.items() if p.split("/")[0] in wanted}
    check_leaves(own, wanted)
    trees = unpack(message, head)
    copies = trees.get("copies", {})
    return Ledger(
        server=restore(new.server, trees["server"]),
        entries={
            site: Entry(*line)._replace(counted=tuple(line[2]))
            for site, line in head.fields["entries"].items()
        },
        incarnation=head.fields["incarnation"],
        settings=head.fields["settings"],
        epoch=head.fields["epoch"],
        current=head.fields["current"],
        round=head.fields["round"],
        clock=head.fields["clock"],
        total=trees["total"] if counted else new.total,
        counted=counted,
        start=trees.get("start", {}),
        kept=trees.get("kept", {}),
        copies={site: restore(like, memory) for site, memory in copies.items()},
        reach=Reach(*head.fields["reach"]),
        spiked=head.fields["spiked"],
    )

"""The server's ledger: all that must outlive its process, as a value and by names."""

from typing import TYPE_CHECKING, Any, NamedTuple

from focusfl.core import Client, Message, Server
from focusfl.engines.protocol.magnitude import Reach
from focusfl.tree import Tree

if TYPE_CHECKING:
    from focusfl.engines.protocol.entries import Entries

GONE, BARRED = 1, 2  # flags of entries


class Ledger(NamedTuple):
    """Replaced as a whole, never written to."""

    server: Server
    incarnation: str  # of the server: another one every time that it is started
    settings: dict[str, Any]  # what it was last started with
    entries: "Entries"  # an Entry for every site, by name
    epoch: int
    current: int  # the open round's index in this epoch; -1 is the one before round 0
    round: int  # rounds closed, over all epochs
    clock: int  # the `seq` of the last request
    total: Message  # sum of the pushes counted in the open round
    counted: tuple[str, ...]  # whose these are
    start: dict[str, Tree]  # {"x": what the epoch began with} while a site needs it
    kept: dict[str, Message]  # what sites must still be told, by the index of a round
    copies: dict[str, Client]  # sites' memories after their last push, if kept
    reach: Reach
    spiked: bool = False  # a push of the open round is far larger than all before


class Entry(NamedTuple):
    """What the ledger knows of one site."""

    applied: int = 0  # the push counted last; 0: none in this epoch
    digest: str = ""  # its checksum
    counted_in: tuple = ()  # the round it was counted in: the scalars of a Round
    grads_done: int = 0  # gradients the site has computed up to then, over all epochs
    gone: bool = False  # it has left for good
    barred: bool = False  # it is left out, until the server is started again
    losses: int = 0  # of its memory, since it was seen to have one
    pushes: int = 0  # counted in this epoch

    @property
    def is_open(self) -> bool:
        """Whether its push is in the round that is open."""
        return bool(self.applied) and not self.counted_in


class View:
    """The state of a job, by names."""

    ledger: Ledger

    @property
    def server(self) -> Server:
        """The algorithm's state on the server."""
        return self.ledger.server

    @property
    def x(self) -> Tree:
        """The model."""
        return self.ledger.server.x

    @property
    def num_clients(self) -> int:
        """N, whoever has left."""
        return len(self.ledger.entries)

    @property
    def round(self) -> int:
        """How many rounds are over, in all epochs."""
        return self.ledger.round

    @property
    def epoch(self) -> int:
        """1, and one more for every time that all memory was emptied."""
        return self.ledger.epoch

    @property
    def counted(self) -> tuple[str, ...]:
        """Whose pushes are in the open round so far."""
        return self.ledger.counted

    @property
    def applied(self) -> dict[str, int]:
        """The number of everybody's push that was counted last; 0: none this epoch."""
        return self.ledger.entries.applied

    @property
    def barred(self) -> tuple[str, ...]:
        """Who of these is left out, as long as this server lives."""
        return self.ledger.entries.flagged(BARRED)

    @property
    def gone(self) -> tuple[str, ...]:
        """Who has left for good."""
        return self.ledger.entries.flagged(GONE)

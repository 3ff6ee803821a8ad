"""What can be read in the server's ledger."""

from focusfl.core import Server
from focusfl.engines.protocol.entries import BARRED, GONE
from focusfl.engines.protocol.ledger import Ledger
from focusfl.tree import Tree


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

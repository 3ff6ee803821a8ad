"""What keeps sites from taking part, until they do again or an epoch begins."""

from focusfl.engines.protocol.ledger import Ledger
from focusfl.engines.protocol.messages import Receipt, Reply
from focusfl.engines.protocol.rules import LOSSES

STRIKES = 5  # in a row, after which a site is left out


class Incidents:
    """What sites said, or gave, that could not be counted. Not on disk.

    A site that loses its memory time and again takes part all the same, when the server
    keeps it. One that gives what is too large, or knows of later times, time and again,
    is left out: what it has contributed is taken back, and the others are exact without
    it.
    """

    def __init__(self):
        self.lost: set[str] = set()
        self.spent: set[str] = set()  # their budgets, in this server's life
        self._latest = 0  # the latest epoch that a site which is ahead knows of
        self._strikes: dict[str, int] = {}

    def report(self, ledger: Ledger, reply: Reply) -> Receipt:
        """Note that a site is ahead, has lost its memory, or spent its budget."""
        site = reply.site
        if reply.kind == "spent":
            self.spent.add(site)
            words = "may give nothing away any more: what it gave stays in the model"
            return Receipt("spent", f"{site} {words}, and it is asked no more.")
        if reply.kind == "ahead":
            self.strike(site)
            if site not in self.struck(ledger):
                self._latest = max(self._latest, reply.latest)
            known = f"it was asked in epoch {reply.latest} before, by another server"
            return Receipt("ahead", f"{site} is ahead: {known}.")
        self.lost.add(site)
        why = f"{site} has lost its memory."
        if ledger.entries[site].losses == LOSSES - 1:
            why += f" It has done so {LOSSES} times: from now on it is kept here."
        return Receipt("lost", why)

    def strike(self, site: str) -> None:
        """Note that a site gave what cannot count, whenever it is asked."""
        self._strikes[site] = self._strikes.get(site, 0) + 1

    def struck(self, ledger: Ledger) -> tuple[str, ...]:
        """Who is to be left out: never all that there are."""
        out = [site for site, times in self._strikes.items() if times >= STRIKES]
        if not out:
            return ()
        here = sum(not ledger.entries[site].gone for site in out)
        return tuple(out) if ledger.entries.num_here > here else ()

    def restarts(self, ledger: Ledger) -> str:
        """Why a new epoch is to begin; empty if there is no reason."""
        if self._latest:
            return f"sites know of epoch {self._latest}"
        if ledger.spiked:
            return "a push was far larger than all before it"
        lost = self.lost - {*ledger.copies}
        return f"lost memory of {', '.join(sorted(lost))}" if lost else ""

    @property
    def latest(self) -> int:
        return self._latest

    def forgive(self, site: str) -> None:
        """A push of this site was counted: all is well with it."""
        self.lost.discard(site)
        self._strikes.pop(site, None)

    def new_epoch(self) -> None:
        """Nobody has anything to lose now."""
        self.lost.clear()
        self._latest = 0

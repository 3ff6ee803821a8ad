"""What a job agrees on, and what follows for its books: pure, from books to books."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl import tree
from focusfl.checks import check_count, check_positive
from focusfl.core import Algorithm, Client, Message, Round
from focusfl.engines.protocol.files import check_name
from focusfl.engines.protocol.format import Refused, leaves
from focusfl.engines.protocol.ledger import Books, Entry
from focusfl.engines.protocol.messages import Answer, Ask
from focusfl.engines.protocol.requirements import Needs
from focusfl.engines.protocol.snapshots import (
    UNKNOWN,
    Slot,
    farewell,
    first_index,
    newcomer,
    settle,
)
from focusfl.tree import Tree

LIFE = 1 << 32  # numbers a server may give out before it dies


def check_settings(
    job: str, sites: Sequence[str], lr: Any, local_steps: int, on_empty: str,
    max_norm: float | int | None,
) -> None:  # fmt: skip
    """Raise ValueError unless a job can be run with these."""
    check_name("job", job)
    for site in sites:
        check_name("site", site)
    if not sites or len({*sites}) < len(sites):
        raise ValueError(f"sites must be different names; got {list(sites)}.")
    if on_empty not in ("skip", "step"):
        raise ValueError(f"on_empty must be 'skip' or 'step'; got {on_empty!r}.")
    check_count("local_steps", local_steps)
    if not callable(lr):
        check_positive("lr", lr)
    if max_norm is not None:
        check_positive("max_norm", max_norm)


@dataclass(frozen=True)
class Rules:
    """The constants of a job, and how its books move on."""

    algorithm: Algorithm
    job: str
    sites: tuple[str, ...]
    lr: Callable[[int], float]
    local_steps: int
    on_empty: str
    copies: bool
    needs: Needs

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the job it is opened for."""
        return {
            "kind": "books", "algorithm": repr(self.algorithm), "job": self.job,
            "sites": list(self.sites),
        }  # fmt: skip

    def rd(self, index: int) -> Round:
        """A round while it is open."""
        lr, steps = (self.lr(index), self.local_steps) if index >= 0 else (0.0, 1)
        return Round(index, float(lr), steps, len(self.sites), UNKNOWN)

    def begin(self, params: Tree) -> Books:
        """Open the books: nobody has contributed anything."""
        return Books(
            server=self.algorithm.init(params)[0],
            ledger={site: Entry() for site in self.sites},
            epoch=1,
            current=first_index(self.algorithm),
            round=0,
            clock=0,
            total=tree.zeros(self.needs.up),
            counted=(),
            start={"x": params} if self.needs.start else {},
            kept={},
            copies={},
        )

    def next_epoch(self, books: Books) -> Books:
        """Start over from the present model, with everybody's memory empty."""
        ledger = {
            site: Entry(number=entry.number, gone=entry.gone)
            for site, entry in books.ledger.items()
        }
        return self.begin(books.server.x)._replace(
            ledger=ledger, epoch=books.epoch + 1, round=books.round, clock=books.clock
        )

    def next_life(self, books: Books) -> Books:
        """Count on from higher numbers: answers to what was asked before are void."""
        return books._replace(clock=(books.clock // LIFE + 1) * LIFE)

    def ask(self, books: Books, site: str) -> Ask:
        """The header of a request."""
        entry, rd = books.ledger[site], self.rd(books.current)
        return Ask(
            algorithm=repr(self.algorithm),
            job=self.job,
            site=site,
            epoch=books.epoch,
            round=books.current,
            seq=books.clock + 1,
            base=entry.applied,
            digest=entry.digest,
            counted=list(entry.counted),
            number=entry.number,
            lr=rd.lr,
            local_steps=rd.local_steps,
            num_clients=rd.num_clients,
            copies=self.copies,
        )

    def told(self, books: Books, site: str) -> dict[str, Tree]:
        """What one site must know beside what all are sent."""
        entry = books.ledger[site]
        if entry.applied and self.needs.settle:
            return {"settle": books.kept[str(entry.counted[0])]}
        if not entry.applied and self.needs.start:
            return {"start": books.start["x"]}
        return {}

    def count(
        self,
        books: Books,
        answer: Answer,
        digest: str,
        up: Message,
        memory: Client | None,
    ) -> Books:
        """Take a push into the open round; raise Refused if the sum is infinite."""
        with np.errstate(all="ignore"):
            total = tree.add(books.total, up)
        if not all(np.isfinite(leaf).all() for leaf in leaves(total)):
            raise Refused("it is so large that the sum of all pushes is infinite.")
        # A copy of an earlier push would be worse than none.
        copies = {k: copy for k, copy in books.copies.items() if k != answer.site}
        entry = Entry(
            applied=answer.seq,
            digest=digest,
            number=answer.number,
            gone=answer.kind == "goodbye",
        )
        return books._replace(
            ledger=books.ledger | {answer.site: entry},
            total=total,
            counted=(*books.counted, answer.site),
            copies=copies | ({answer.site: memory} if self.copies else {}),
        )

    def waits(self, books: Books) -> bool:
        """Whether the open round is the one before round 0 and somebody is missing."""
        here = {site for site, entry in books.ledger.items() if not entry.gone}
        return books.current < 0 and bool(here - {*books.counted})

    def close(self, books: Books) -> Books:
        """Update the model and open the next round."""
        server, counted = books.server, books.counted
        rd = self.rd(books.current)._replace(num_active=len(counted))
        if counted or self.on_empty == "step":
            with np.errstate(all="ignore"):  # the caller looks
                server = self.algorithm.update(server, books.total, rd)
        ledger = {
            site: entry._replace(counted=tuple(rd)) if site in counted else entry
            for site, entry in books.ledger.items()
        }
        kept = books.kept
        if counted and self.needs.settle:
            down = self.algorithm.broadcast(server)
            answer = {name: down[name] for name in self.needs.settle}
            kept = kept | {str(rd.index): answer}
        rounds = {str(entry.counted[0]) for entry in ledger.values() if entry.applied}
        newcomers = any(not entry.applied for entry in ledger.values())
        return books._replace(
            server=server,
            ledger=ledger,
            current=books.current + 1,
            round=books.round + (books.current >= 0),
            total=tree.zeros(self.needs.up),
            counted=(),
            start=books.start if newcomers else {},
            kept={index: kept[index] for index in kept if index in rounds},
        )

    def without(self, books: Books, site: str) -> Books:
        """Say goodbye for a site that cannot; raise if too little is known of it."""
        entry = books.ledger[site]
        ledger = books.ledger | {site: entry._replace(gone=True)}
        if not entry.applied:
            return books._replace(ledger=ledger)
        if site not in books.copies:
            raise ValueError(f"there is no copy of what {site} has contributed.")
        rd, down = self.rd(books.current), self.algorithm.broadcast(books.server)
        slot = Slot(entry.applied, entry.digest, books.copies[site])
        answer = self.told(books, site).get("settle", {})
        slot = settle(self.algorithm, slot, answer, Round(*entry.counted))
        new = newcomer(self.algorithm, tree.zeros(books.server.x)).memory
        memory, up = farewell(self.algorithm, slot, down, rd, new)
        goodbye = Answer(
            "goodbye", "", self.job, site, books.epoch, books.current, books.clock + 1,
            entry.applied, entry.number,
        )  # fmt: skip
        books = self.count(books, goodbye, "", up, memory)
        return books._replace(clock=goodbye.seq)

"""The server's side: whom to ask, what to count, and what must be on disk by when."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from focusfl import tree
from focusfl.core import Algorithm, Server
from focusfl.engines.protocol import files
from focusfl.engines.protocol import ledger as bookkeeping
from focusfl.engines.protocol.format import (
    Packed,
    Refused,
    Wired,
    check_leaves,
    encode,
    header,
    leaves,
    pack,
    restore,
    unpack,
)
from focusfl.engines.protocol.ledger import Books
from focusfl.engines.protocol.messages import Ask, read_answer
from focusfl.engines.protocol.requirements import needs
from focusfl.engines.protocol.rules import Rules, check_settings
from focusfl.engines.protocol.snapshots import newcomer
from focusfl.engines.protocol.validation import check_due, check_norm
from focusfl.tree import Tree

log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """What became of a reply."""

    status: Literal["applied", "refused", "lost"]
    why: str = ""

    @property
    def applied(self) -> bool:
        return self.status == "applied"


class Hub:
    """The server of one job. Killed at any moment, it goes on from its last checkpoint.

    A round is always open: ask sites, receive replies, close it. What a reply brings
    is counted in the round that is open when it comes, and a site is told so in the
    next round at the earliest, when it is on disk.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        params: Tree,
        sites: Sequence[str],
        folder: str | Path,
        *,
        job: str,
        lr: float | int | Callable[[int], float],
        local_steps: int = 1,
        on_empty: Literal["skip", "step"] = "skip",
        max_norm: float | int | None = None,
        copies: bool = False,
    ):
        check_settings(job, sites, lr, local_steps, on_empty, max_norm)
        params = tree.map(np.asarray, params)
        pack({"params": params})  # raises on what cannot travel
        if not all(leaf.dtype.kind == "f" for leaf in leaves(params)):
            raise ValueError("params must be arrays of floating point numbers.")
        self._rules = Rules(
            algorithm, job, tuple(sites), lr if callable(lr) else lambda index: lr,
            int(local_steps), on_empty, copies, needs(algorithm, params, len(sites)),
        )  # fmt: skip
        self._memory = newcomer(algorithm, params).memory
        self._max_norm = max_norm
        self._path = Path(folder).expanduser() / job / "server.books"
        files.make_folder(self._path.parent)
        self._lock = ExitStack()
        self._lock.enter_context(files.lock(self._path))
        self._owed: dict[str, Ask] = {}
        self._lost: set[str] = set()
        self._down: Packed | None = None  # the broadcast of the open round
        try:
            self.books = self._resume(self._rules.begin(params))
            self.save()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Hub":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the job. Writes nothing."""
        self._lock.close()

    @property
    def server(self) -> Server:
        """The algorithm's state on the server."""
        return self.books.server

    @property
    def x(self) -> Tree:
        """The model."""
        return self.books.server.x

    @property
    def num_clients(self) -> int:
        """N, whoever has left."""
        return len(self.books.ledger)

    @property
    def round(self) -> int:
        """How many rounds are over, in all epochs."""
        return self.books.round

    @property
    def epoch(self) -> int:
        """1, and one more for every time that all memory was emptied."""
        return self.books.epoch

    @property
    def counted(self) -> tuple[str, ...]:
        """Whose pushes are in the open round so far."""
        return self.books.counted

    @property
    def applied(self) -> dict[str, int]:
        """The number of everybody's push that was counted last; 0: none this epoch."""
        return {site: entry.applied for site, entry in self.books.ledger.items()}

    @property
    def gone(self) -> tuple[str, ...]:
        """Who has left for good."""
        return tuple(site for site, entry in self.books.ledger.items() if entry.gone)

    @property
    def waiting(self) -> dict[str, int]:
        """Who owes an answer, and since which round."""
        past = self.books.round - self.books.current
        return {site: past + ask.round for site, ask in self._owed.items()}

    @property
    def asked(self) -> dict[str, int]:
        """Who owes an answer, and the number it must bear."""
        return {site: ask.seq for site, ask in self._owed.items()}

    @property
    def free(self) -> tuple[str, ...]:
        """Who may be asked at no loss: owes nothing, was not counted, has not left."""
        busy = {*self.counted, *self.gone, *self._owed}
        return tuple(site for site in self.books.ledger if site not in busy)

    def request(self, site: str) -> Wired:
        """Ask a site to take part; an answer it still owes is void from now on."""
        self._check_known(site)
        if site in self.counted:
            raise ValueError(
                f"{site} was counted in round {self.round} and must wait for the next."
            )
        ask = self._rules.ask(self.books, site)
        more = self._rules.told(self.books, site)
        if site in self._lost and site in self.books.copies:
            more["memory"] = self.books.copies[site]
        if self._down is None:
            down = self._rules.algorithm.broadcast(self.books.server)
            self._down = pack({"down": down})
        message = encode(ask._asdict(), self._down, pack(more))
        self.books = self.books._replace(clock=ask.seq)
        self._owed[site] = ask
        return message

    def receive(self, sender: str, reply: Wired) -> Verdict:
        """Count a reply in the open round, or say why not; then it changes nothing."""
        try:
            head = header(reply)
            answer = read_answer(head)
            check_due(self._rules, self.books, self._owed.get(sender), sender, answer)
            if answer.kind == "lost":
                check_leaves(head.leaves, {})
                log.warning("%s has lost its memory", sender)
                self._lost.add(sender)
                del self._owed[sender]
                return Verdict("lost", f"{sender} has lost its memory.")
            like = {"up": self._rules.needs.up}
            if self._rules.copies:
                like["memory"] = self._memory
            check_leaves(head.leaves, like)
            trees = restore(like, unpack(reply, head))
            check_norm(trees["up"], self._max_norm)
            books = self._rules.count(
                self.books, answer, head.digest, trees["up"], trees.get("memory")
            )
        except Refused as error:
            log.warning("refused a message from %s: %s", ascii(sender), error)
            return Verdict("refused", str(error))
        self.books = books
        self._lost.discard(sender)
        del self._owed[sender]
        return Verdict("applied")

    def give_up(self, site: str, number: int | None = None) -> None:
        """Expect no answer any more; should it come all the same, it is refused.

        With the number of a request, of that one alone: the site may have been asked
        again since.
        """
        self._check_known(site)
        if number is None or self.asked.get(site) == number:
            self._owed.pop(site, None)

    def close_round(self) -> tuple[str, ...] | None:
        """Update the model, open the next round, and give who was counted.

        The round before round 0 of an algorithm that starts warm is over when
        everybody was counted: until then it stays open, and this gives None.
        """
        if self._rules.waits(self.books):
            self.save()
            return None
        counted, books = self.counted, self._rules.close(self.books)
        if lost := self._lost - {*books.copies}:
            log.warning("epoch %s: lost memory of %s", books.epoch + 1, sorted(lost))
            books = self._rules.next_epoch(books)
        self._commit(books)
        return counted

    def new_epoch(self) -> None:
        """Start over from the present model, with everybody's memory empty.

        What the open round has counted so far is dropped. Exact again after everybody
        has been seen once.
        """
        self._commit(self._rules.next_epoch(self.books))

    def forget(self, site: str) -> None:
        """Go on without a site that will never return.

        What it has contributed is taken back if there is a copy of its memory, as if it
        had said goodbye; else a new epoch begins.
        """
        self._check_known(site)
        if site in self.counted:
            raise ValueError(f"{site} was just counted: close the round first.")
        books = self.books
        try:
            books = self._rules.without(books, site)
        except ValueError as error:
            log.warning("epoch %s: %s", books.epoch + 1, error)
            gone = books.ledger[site]._replace(gone=True)
            books = books._replace(ledger=books.ledger | {site: gone})
            books = self._rules.next_epoch(books)
        self._commit(books)
        self._owed.pop(site, None)

    def save(self) -> None:
        """Write a checkpoint, in the middle of a round too."""
        self._commit(self.books)

    def _resume(self, new: Books) -> Books:
        try:
            entries = files.load(self._path)
            if entries is None:
                return new
            books = bookkeeping.read(entries, self._rules.identity, new, self._memory)
        except Refused as error:
            raise ValueError(f"cannot resume from {self._path}: {error}") from None
        return self._rules.next_life(books)

    def _commit(self, books: Books) -> None:
        """Make these the books, on disk first."""
        try:
            entries = bookkeeping.write(books, self._rules.identity)
        except ValueError as error:
            raise ArithmeticError(
                f"round {self.round} cannot be closed: {error} Lower lr."
            ) from None
        files.save(self._path, entries)
        if books.epoch != self.epoch:
            self._owed.clear()
            self._lost.clear()
        self.books, self._down = books, None

    def _check_known(self, site: str) -> None:
        if site not in self.books.ledger:
            known = ", ".join(self.books.ledger)
            raise ValueError(f"unknown site {site!r}; this job has {known}.")

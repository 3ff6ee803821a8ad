"""The server: requests, what replies count, and what must be on disk by when."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np

from focusfl import tree
from focusfl.checks import shown
from focusfl.core import Algorithm
from focusfl.engines.protocol import files, messages
from focusfl.engines.protocol.books import Books
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
from focusfl.engines.protocol.incidents import STRIKES, Incidents
from focusfl.engines.protocol.ledger import Ledger, View
from focusfl.engines.protocol.magnitude import TooLarge, check_size, norm, strayed
from focusfl.engines.protocol.messages import Receipt, Request
from focusfl.engines.protocol.requirements import requirements
from focusfl.engines.protocol.rules import Rules
from focusfl.engines.protocol.settings import (
    check_settings,
    check_unchanged,
    settings_of,
    steps_of,
)
from focusfl.engines.protocol.snapshots import newcomer
from focusfl.engines.protocol.uplink import Uplink
from focusfl.tree import Tree

log = logging.getLogger(__name__)


class ProtocolServer(View):
    """The server of one job. Killed at any moment, it goes on from its last checkpoint.

    A round is always open: send requests, receive replies, close it. A reply counts in
    the round that is open when it comes, and its site is told so in the next round at
    the earliest, when it is on disk.
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
        weights: Mapping[str, float | int] | None = None,
        changed: Literal["refuse", "accept"] = "refuse",
    ):
        check_settings(job, sites, lr, local_steps, on_empty, max_norm, weights)
        params = tree.map(np.asarray, params)
        pack({"params": params})  # raises on what cannot travel
        if not all(leaf.dtype.kind == "f" for leaf in leaves(params)):
            raise ValueError("params must be arrays of floating point numbers.")
        self._rules = Rules(
            algorithm, job, tuple(sites), steps_of(lr),
            int(local_steps), on_empty, copies,
            requirements(algorithm, params, len(sites)),
            settings_of(params, lr, local_steps, on_empty),
            weights and {site: float(w) for site, w in weights.items()},
        )  # fmt: skip
        self._uplink = Uplink(algorithm, params, self._rules.requirements.up)
        self._memory = newcomer(algorithm, params).memory
        self._max_norm = max_norm
        self._path = Path(folder).expanduser() / job / "server.ledger"
        if not self._path.exists():
            files.make_folder(self._path.parent)
        self._lock = ExitStack()
        self._lock.enter_context(files.lock(self._path))
        self._books = Books(self._path, self._rules.identity)
        self._requests: dict[str, Request] = {}
        self._incidents = Incidents()
        self._down: Packed | None = None  # the broadcast of the open round
        try:
            self.ledger = self._resume(self._rules.begin(params), changed)
            self.save()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ProtocolServer":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the job. Writes nothing."""
        self._lock.close()

    @property
    def waiting(self) -> dict[str, int]:
        """Who owes a reply, and since which round, over all epochs."""
        past = self.ledger.round - self.ledger.current  # rounds of earlier epochs
        return {site: past + request.round for site, request in self._requests.items()}

    @property
    def asked(self) -> dict[str, int]:
        """Who owes a reply, and the number it must bear."""
        return {site: request.seq for site, request in self._requests.items()}

    @property
    def free(self) -> tuple[str, ...]:
        """Who may be asked at no loss: owes nothing, was not counted, has not left."""
        busy = {*self.counted, *self.gone, *self._requests, *self.spent}
        return tuple(site for site in self.ledger.entries if site not in busy)

    def awaits(self, site: str, number: int | None) -> bool:
        """Whether that reply is due; void where a stage of a secure sum is over."""
        return True

    @property
    def spent(self) -> tuple[str, ...]:
        """Who said that it may give nothing away any more."""
        return tuple(sorted(self._incidents.spent))

    @property
    def notice(self) -> str:
        """What was wrong with the books when they were opened; empty if nothing."""
        return self._books.notice

    @property
    def restarts(self) -> str:
        """Why a new epoch begins when this round is closed; empty if none does."""
        return self._incidents.restarts(self.ledger)

    def request(self, site: str) -> Wired:
        """A request to a site; a reply it still owes is void from now on."""
        self._check_known(site)
        if self.ledger.entries[site].is_open:
            raise ValueError(
                f"{site} was counted in round {self.round} and must wait for the next."
            )
        request = self._rules.request(self.ledger, site)
        more = self._rules.extras(self.ledger, site, site in self._incidents.lost)
        if self._down is None:
            down = self._rules.algorithm.broadcast(self.ledger.server)
            self._down = pack({"down": down})
        message = encode(request._asdict(), self._down, pack(more))
        self.ledger = self.ledger._replace(clock=request.seq)
        self._requests[site] = request
        return message

    def receive(self, sender: str, message: Wired) -> Receipt:
        """Count a reply in the open round, or say why not; then it changes nothing."""
        try:
            head = header(message)
            reply = messages.read_reply(head)
            asked = self._requests.get(sender)
            messages.validate_reply(self._rules, self.ledger, asked, sender, reply)
            if reply.kind in messages.NO_PUSH:
                check_leaves(head.leaves, {})
                receipt = self._incidents.report(self.ledger, reply)
                log.warning(receipt.why)
                del self._requests[sender]
                if reply.kind == "spent" and self.ledger.current < 0:
                    self.forget(sender)  # nobody could wait for it
                return receipt
            like = {"up": self._uplink.like}
            if self._requests[sender].copies:
                like["memory"] = self._memory
            check_leaves(head.leaves, like)
            trees = restore(like, unpack(message, head))
            up = self._uplink.read(trees["up"], reply.round)
            size, pushes = norm(up), self.ledger.entries[sender].pushes
            check_size(size, self._max_norm, pushes, self.ledger.reach)
            ledger = self._rules.count(
                self.ledger, reply, head.digest, up, trees.get("memory"), size
            )
        except TooLarge as error:
            self._incidents.strike(sender)
            log.warning("refused a push from %s: %s", sender, error)
            return Receipt("refused", str(error))
        except Refused as error:
            log.warning("refused a message from %s: %s", ascii(sender), error)
            return Receipt("refused", str(error))
        self.ledger = ledger
        self._incidents.forgive(sender)
        del self._requests[sender]
        return Receipt("applied")

    def give_up(self, site: str, number: int | None = None) -> None:
        """Expect no reply any more; should it come all the same, it is refused.

        With the number of a request, of that one alone: the site may have been asked
        again since.
        """
        self._check_known(site)
        if number is None or self.asked.get(site) == number:
            self._requests.pop(site, None)

    def close_round(self) -> tuple[str, ...] | None:
        """Update the model, open the next round, and give who was counted.

        The round before round 0 of an algorithm that starts warm is over when
        everybody was counted: until then it stays open, and this gives None.
        """
        counted, ledger, why = self.counted, self.ledger, self.restarts
        waits = self._rules.waits(ledger)
        if not waits:
            ledger = self._rules.close(ledger)
            why = why or self._incidents.restarts(ledger)
            why = why or strayed(ledger.reach, ledger.server.x)
        if why and np.isfinite(norm(ledger.server.x)):  # else it cannot be written
            ledger = self._restarted(ledger, why)
        for site in self._incidents.struck(ledger):
            log.warning("%s is left out: %s times of no use", site, STRIKES)
            ledger = self._without(ledger, site, barred=True)
        self._commit(ledger)
        return None if waits else counted

    def new_epoch(self, why: str = "asked for") -> None:
        """Start over from the present model, with everybody's memory empty.

        What the open round has counted so far is dropped. Exact again after everybody
        has been seen once.
        """
        self._commit(self._restarted(self.ledger, why))

    def _restarted(self, ledger: Ledger, why: str) -> Ledger:
        lost, latest = self._incidents.lost, self._incidents.latest
        ledger = self._rules.next_epoch(ledger, latest, lost)
        log.warning("epoch %s: %s", ledger.epoch, why)
        return ledger

    def forget(self, site: str) -> None:
        """Go on without a site that will never return.

        What it has contributed is taken back if there is a copy of its memory, as if it
        had said goodbye; else a new epoch begins.
        """
        self._check_known(site)
        if site in self.counted:
            raise ValueError(f"{site} was just counted: close the round first.")
        self._commit(self._without(self.ledger, site))

    def _without(self, ledger: Ledger, site: str, barred: bool = False) -> Ledger:
        self._requests.pop(site, None)
        self._incidents.forgive(site)
        try:
            ledger, why = self._rules.without(ledger, site), ""
        except ValueError as error:
            why = str(error)
        entry = ledger.entries[site]._replace(gone=True, barred=barred)
        ledger = ledger._replace(entries=ledger.entries | {site: entry})
        return self._restarted(ledger, why) if why else ledger

    def save(self) -> None:
        """Write a checkpoint, in the middle of a round too."""
        self._commit(self.ledger)

    def _resume(self, new: Ledger, changed: str) -> Ledger:
        try:
            ledger = self._books.load(new, self._memory, self._rules.roster)
            if ledger is None:
                return new
            other = check_unchanged(ledger.settings, new.settings, changed)
        except ValueError as error:
            raise ValueError(f"cannot resume from {self._path}: {error}") from None
        for words in other:
            log.warning("%s goes on: %s", self._rules.job, words)
        return self._rules.next_life(ledger._replace(settings=new.settings))

    def _commit(self, ledger: Ledger) -> None:
        """Make these the ledger, on disk first."""
        try:
            self._books.save(ledger)
        except ValueError as error:
            words = f"round {self.round} cannot be closed: {error} Lower lr."
            raise ArithmeticError(words) from None
        if ledger.epoch != self.epoch:
            self._requests.clear()
            self._incidents.new_epoch()
        self.ledger, self._down = ledger, None

    def _check_known(self, site: str) -> None:
        if site not in self.ledger.entries:
            known = shown([*self.ledger.entries])
            raise ValueError(f"unknown site {site!r}; this job has {known}.")

"""The server of secure sums: the plain one, that counts a whole sum or nothing."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from focusfl import tree
from focusfl.core import Algorithm
from focusfl.engines.protocol.format import Refused, Wired, check_leaves, header, leaves
from focusfl.engines.protocol.incidents import STRIKES
from focusfl.engines.protocol.ledger import Ledger
from focusfl.engines.protocol.messages import (
    NO_PUSH,
    Receipt,
    read_reply,
    validate_reply,
)
from focusfl.engines.protocol.rules import LOSSES
from focusfl.engines.protocol.server import ProtocolServer
from focusfl.engines.secure.messages import (
    STAGES,
    Said,
    Stage,
    blob,
    only,
    read,
    write,
)
from focusfl.engines.secure.numbers import to_push
from focusfl.engines.secure.policy import Secure, check_job, fixed_point
from focusfl.engines.secure.session import Failed, Session
from focusfl.tree import Tree

log = logging.getLogger(__name__)


class SecureServer(ProtocolServer):
    """A server that learns the sum of a round's pushes and no single one.

    Unless it lies: docs/secure.md says how a server that does opens a push.

    A round has sessions of four stages: `request` and `receive` as often as need be,
    then `advance`. The last stage counts the pushes of all who stayed, in the ledger
    and so on disk with the round: who they are is told to nobody before that, and the
    next request tells it to each. A session is in memory alone: with the server it is
    over, nothing of it was counted, and sites learn that likewise.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        params: Tree,
        sites: Sequence[str],
        folder: str | Path,
        *,
        secure: Secure,
        **options: Any,
    ):
        check_job(secure, algorithm, params, len(sites), options)  # writes nothing
        self.secure, self._codec = secure, fixed_point(algorithm)
        self.awaited: set[str] = set()  # who was asked in this stage, and may answer
        self._session: Session | None = None
        self._number = 0  # of the last session
        ProtocolServer.__init__(self, algorithm, params, sites, folder, **options)
        self._size = sum(np.size(a) for a in leaves(self._rules.requirements.up))

    @property
    def session(self) -> Session | None:
        """The one that is under way."""
        return self._session

    @property
    def turn(self) -> int:
        """The number of this stage, among all of this server; 0 between sessions."""
        session = self._session
        return len(STAGES) * session.number + session.at if session else 0

    def awaits(self, site: str, number: int | None) -> bool:
        """Whether this stage still waits for a reply; what comes later is void."""
        return site in self.free and number == self.turn

    @property
    def free(self) -> tuple[str, ...]:
        """Who has not answered in this stage; without a session, who may be in one."""
        if self.counted:
            return ()
        if self._session is None:
            away = {*self.gone, *self.spent}
            return tuple(s for s in self.ledger.entries if s not in away)
        here = self._session.answered
        return tuple(site for site in self._session.members if site not in here)

    def begin(self, sites: Sequence[str]) -> None:
        """Begin a session of these; one that is under way is over, uncounted."""
        for site in sites:
            self._check_known(site)
        if self.counted:
            raise ValueError(f"round {self.round} has its sum: close it first.")
        self._number += 1
        self._requests.clear()
        self.awaited.clear()
        self._session = Session(self.secure, self._number, sorted(sites))

    def request(self, site: str) -> Wired:
        """This stage's message to a site: the same, however often it is asked for."""
        self._check_known(site)
        session = self._session
        if session is None or site not in session.members:
            raise ValueError(f"{site} is in no session that is under way.")
        if site not in session.sent:
            parts: dict[str, Any] = {}
            if session.stage == "shares":
                parts = {"public": session.public}
            elif session.stage == "push":
                sealed = {s: session.sealed[s][site] for s in session.members}
                inner = ProtocolServer.request(self, site)
                parts = {"sealed": sealed, "request": inner}
            elif session.stage == "unmask":
                parts = {"pushed": {s: b"" for s in session.masked}}
            session.sent[site] = write(self._stage(session, site), parts)
        self.awaited.add(site)
        return session.sent[site]

    def receive(self, sender: str, message: Wired) -> Receipt:
        """Take what a site says in this stage, or say why not; then nothing changes."""
        try:
            said = read(message, header(message))
            session = self._session
            if session is None or sender not in session.members:
                raise Refused(f"{ascii(sender)} is in no session that is under way.")
            if said.stage != self._stage(session, sender):
                raise Refused("it belongs to another session, stage or site.")
            if sender in session.answered:
                raise Refused(f"{sender} has answered already.")
            if session.stage == "keys":
                session.take_keys(sender, said)
            elif session.stage == "shares":
                session.take_shares(sender, said)
            elif session.stage == "push":
                return self._take_push(session, sender, said)
            else:
                session.take_unmasking(sender, said)
        except Refused as error:
            log.warning("refused a message from %s: %s", ascii(sender), error)
            return Receipt("refused", str(error))
        self.awaited.discard(sender)
        return Receipt("applied")

    def _take_push(self, session: Session, sender: str, said: Said) -> Receipt:
        """A masked push; or what a site says that has none to give."""
        only(said, "reply", "masked", "digest")
        inner = {"header": blob(said, "reply")}
        head = header(inner)
        reply = read_reply(head)
        if reply.kind in NO_PUSH:
            only(said, "reply")
            receipt = ProtocolServer.receive(self, sender, inner)
            if receipt.status == "refused":
                raise Refused(receipt.why)
            session.pushes[sender] = reply, ""
            if reply.kind == "lost" and self._losses(sender) >= LOSSES - 1:
                return self._leave_out(sender)
            return receipt
        check_leaves(head.leaves, {})
        request = self._requests.get(sender)
        validate_reply(self._rules, self.ledger, request, sender, reply)
        masked = blob(said, "masked", 8 * self._size)
        digest = blob(said, "digest", 32)
        if digest.strip(b"0123456789abcdef"):
            raise Refused("digest must be a checksum.")
        session.pushes[sender] = reply, digest.decode()
        session.masked[sender] = np.frombuffer(masked, "<u8")
        return Receipt("applied")

    def advance(self) -> bool:
        """Go on to the next stage; after the last one, count the sum. Whether it was.

        Raises:
            Failed: If too few are left; the session is over, and nothing was counted.
        """
        session = self._session
        if session is None:
            raise ValueError("no session is under way.")
        self.awaited.clear()
        try:
            if session.stage != "unmask":
                session.advance()
                if session.stage == "unmask" and len(session.members) < session.least:
                    raise Failed(f"{len(session.members)} pushes: too few for a sum.")
                return False
            if len(session.answered) < session.least:
                session.advance()  # says how many there are
            self._count(session)
        except Failed as error:
            self._session = None
            self._requests.clear()
            if error.site:
                self._incidents.strike(error.site)
            log.warning("session %s is over: %s", session.number, error)
            raise
        self._session = None
        self._requests.clear()
        return True

    def _count(self, session: Session) -> None:
        """Take the sum into the open round, as everybody's whose pushes are in it."""
        like = self._rules.requirements.up
        total, nothing = to_push(session.total(), like, self._codec), tree.zeros(like)
        ledger = self.ledger
        for site in session.masked:
            reply, digest = session.pushes[site]
            up = nothing if ledger.counted else total  # once, with the first of them
            ledger = self._rules.count(ledger, reply, digest, up, None, 0.0)
        self.ledger = ledger
        for site in session.masked:
            self._incidents.forgive(site)

    def give_up(self, site: str, number: int | None = None) -> None:
        """Await no reply of a site; it may be asked again, and answer all the same."""
        self._check_known(site)
        self.awaited.discard(site)

    def _losses(self, site: str) -> int:
        return self.ledger.entries[site].losses

    def _leave_out(self, site: str) -> Receipt:
        """No copy can be kept here of a memory that is lost time and again."""
        for _ in range(STRIKES):
            self._incidents.strike(site)
        why = f"{site} has lost its memory {LOSSES} times: it is left out."
        return Receipt("lost", why)

    def _commit(self, ledger: Ledger) -> None:
        before = self._at
        ProtocolServer._commit(self, ledger)
        if self._at != before:
            self._session = None

    @property
    def _at(self) -> tuple[int, int]:
        return self.ledger.epoch, self.ledger.current

    def _stage(self, session: Session, site: str) -> Stage:
        return Stage(
            session.stage, repr(self.secure), self._rules.job, site,
            self.ledger.incarnation, self.ledger.epoch, self.ledger.current,
            session.number,
        )  # fmt: skip

"""The server of secure sums: the plain one, that counts a whole sum or nothing."""

import logging
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from focusfl.core import Algorithm, CannotForget, Client
from focusfl.core.tree import Tree
from focusfl.flower.protocol.messages import (
    Receipt,
    Refused,
    Reply,
    Wired,
    decode,
    digest,
    leaves,
)
from focusfl.flower.protocol.server import ProtocolServer
from focusfl.flower.protocol.store import HERE, SiteRow
from focusfl.flower.secure.messages import (
    STAGES,
    Said,
    Stage,
    blob,
    only,
    read,
    write,
)
from focusfl.flower.secure.numbers import to_push
from focusfl.flower.secure.policy import Secure, check_job, fixed_point
from focusfl.flower.secure.session import Failed, Session

log = logging.getLogger(__name__)


class SecureServer(ProtocolServer):
    """A server that learns the sum of a round's pushes and no single one.

    Unless it lies: docs/secure.md says how a server that does opens a push.

    A round has sessions of four stages: `request` and `receive` as often as need be,
    then `advance`. The last stage counts the pushes of all who stayed. A session is in
    memory alone: with the server it is over, and nothing of it was counted.

    Of a site's state the server has the version alone. Where a site has lost its state,
    or leaves, a new generation begins.
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
        self.restarts = ""  # why a new generation must begin
        self._incarnation = token_hex(8)  # no session of an earlier process goes on
        self._session: Session | None = None
        self._number = 0  # of the last session
        ProtocolServer.__init__(self, algorithm, params, sites, folder, **options)
        self._size = sum(np.size(a) for a in leaves(self._uplink.up))

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
            away = {*self.spent, *self._leaving}
            names = self._store.column("name", HERE)
            return tuple(site for site in names if site not in away)
        here = self._session.answered
        return tuple(site for site in self._session.members if site not in here)

    def begin(self, sites: Sequence[str]) -> None:
        """Begin a session of these; one that is under way is over, uncounted."""
        for site in sites:
            self._row(site)  # raises if it is none
        if self.counted:
            raise ValueError(f"round {self.round} has its sum: close it first.")
        self._number += 1
        self.awaited.clear()
        self._session = Session(self.secure, self._number, sorted(sites))

    def request(self, site: str) -> Wired:
        """This stage's message to a site: the same, however often it is asked for."""
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
            said = read(message)
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
        reply, _ = decode(inner, Reply, set())
        if reply.kind != "push":
            only(said, "reply")
            receipt = ProtocolServer.receive(self, sender, inner)
            if receipt.status == "refused":
                raise Refused(receipt.why)
            session.pushes[sender] = reply, ""
            return receipt
        self._check_reply(sender, reply)
        masked = blob(said, "masked", 8 * self._size)
        name = blob(said, "digest", 32)
        if name.strip(b"0123456789abcdef"):
            raise Refused("digest must be a checksum.")
        session.pushes[sender] = reply, name.decode()
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
            self._count_sum(session)
        except Failed as error:
            self._session = None
            if error.site:
                self._strikes[error.site] += 1
            log.warning("session %s is over: %s", session.number, error)
            raise
        self._session = None
        return True

    def _count_sum(self, session: Session) -> None:
        """Take the sum into the open round, as everybody's whose pushes are in it."""
        total = to_push(session.total(), self._uplink.up, self._codec)
        for site in session.masked:
            reply, name = session.pushes[site]
            self._add(self._row(site), reply, name, None)
            if reply.version != digest(self._initial):  # it had kept its state
                self._strikes.pop(site, None)
        self._total = total

    def close_round(self) -> tuple[str, ...] | None:
        why = self.restarts
        counted = ProtocolServer.close_round(self)
        if why:
            self.new_generation(why)
        return counted

    def give_up(self, site: str) -> None:
        """Await no reply of a site; it may be asked again, and answer all the same."""
        self.awaited.discard(site)

    def _missing(self, row: SiteRow) -> Receipt:
        """Nobody has that state any more; who loses it time and again is left out."""
        self._strikes[row.name] += 1
        self.restarts = f"{row.name} has lost its state"
        return Receipt("missing", f"{self.restarts}.")

    def _add_state(self, parts: dict[str, bytes], row: SiteRow) -> None:
        if row.version == digest(self._initial):
            parts["state"] = self._initial

    def _state(self, row: SiteRow) -> Client:
        if row.version != digest(self._initial):
            raise CannotForget(f"the state of {row.name} is its own secret.")
        return ProtocolServer._state(self, row)

    def _commit(self) -> None:
        ProtocolServer._commit(self)
        self._session, self.restarts = None, ""

    def _stage(self, session: Session, site: str) -> Stage:
        return Stage(
            session.stage, repr(self.secure), self.job, site, self._incarnation,
            self.generation, self.round, session.number,
        )  # fmt: skip

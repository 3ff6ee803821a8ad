"""Sites behind Flower's nodes: who is where, what was asked, what has come back."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from focusfl.core.validation import printable
from focusfl.flower.fetching import Fetching
from focusfl.flower.protocol import Wired
from focusfl.flower.public_keys import canonical
from focusfl.flower.records import to_records

log = logging.getLogger(__name__)

HELLO = 30.0  # seconds until a node that has not said who it is is asked again
OUTAGE = 120.0  # seconds for which the SuperLink may fail us before we give up
KEPT = 1000  # answered messages that are remembered, to know a copy when it comes


class Pending(NamedTuple):
    """A message that was sent, and may be answered."""

    kind: str  # train, evaluate or query, as Flower calls it
    node: int
    site: str  # nothing until the node has said
    at: float
    number: int | None = None  # the round, or the turn of a secure sum


class Answer(NamedTuple):
    """What came of a message: an answer, or why there will be none."""

    pending: Pending
    content: RecordDict | None
    why: str = ""  # there is no content
    last: bool = True  # nothing else will come of that message; False: of a copy

    @classmethod
    def of(cls, pending: Pending, message: Message, last: bool = True) -> "Answer":
        """What a message says in answer to what was asked."""
        if message.has_error():
            why = f"error {message.error.code}: {message.error.reason}"
            return cls(pending, None, why, last)
        return cls(pending, message.content, "", last)

    @property
    def site(self) -> str:
        return self.pending.site


class Link:
    """A grid, seen as sites.

    With `keys`, a node is the site whose key it has, and no other is any. Else one that
    was registered by name is the site of that name; while there are such, nobody else
    is taken at their word, and the first of two with a name has it until it is gone.
    Where there are none, a node is asked who it is, and the newest is believed. A site
    that comes back as another node is followed there.
    """

    def __init__(self, grid: Grid, sites: Sequence[str], keys: Mapping[bytes, str] | None = None):
        self._grid, self._sites, self._keys = grid, frozenset(sites), keys
        self._fetch = Fetching(grid.pull_messages)
        self._named = keys is not None  # nodes are known by more than their word
        self._refused: dict[int, str] = {}  # why, by node
        self._unreported: list[str] = []
        self._site: dict[int, str] = {}  # by node; nothing: a stranger
        self._node: dict[str, int] = {}  # by site: its newest
        self._pending: dict[str, Pending] = {}  # by message
        self._answered: dict[str, Pending] = {}
        self._moved: list[str] = []  # sites that have come back as another node
        self._unsent: list[Answer] = []
        self._failing: dict[str, float] = {}  # since when, by what we ask of it

    def look(self) -> list[str]:
        """Find out who is online; greet who is new."""
        nodes = {n.node_id: n for n in self._try(self._grid.get_nodes) or ()}
        greeted = {pending.node for pending in self._pending.values() if not pending.site}
        for node, info in nodes.items():
            if node in self._site or node in greeted:
                continue
            if self._keys is not None:
                site = self._keys.get(_key(info), "")
                self._meet(node, site, "it has the key of no site")
            elif info.name:
                holder = self._node.get(info.name)
                if self._named and holder in nodes and holder != node:
                    self._refuse(node, f"node {holder} is {info.name!r} already")
                else:
                    self._trust_names(info.name)
                    self._meet(node, info.name)
            elif self._named:
                self._refuse(node, "it was registered without a name")
            else:
                hello = Pending("query", node, "", time.monotonic())
                self._send([(hello, RecordDict())], "hello")
        return [site for site, node in self._node.items() if node in nodes]

    def refused(self) -> list[str]:
        """Say which nodes were refused since this was asked last, and why."""
        report, self._unreported = self._unreported, []
        return report

    def node(self, site: str) -> int:
        """Where a site was seen last."""
        return self._node[site]

    def site(self, node: int) -> str:
        """Which site a node is; nothing if it is none of this job."""
        return self._site.get(node, "")

    def ask(self, requests: Iterable[tuple[str, int | None, Wired]], kind: str, group: str) -> None:
        """Send a message each, with its number, to some sites that are online."""
        now = time.monotonic()
        self._send(
            [
                (Pending(kind, self._node[site], site, now, number), to_records(wired))
                for site, number, wired in requests
            ],
            group,
        )

    def poll(self, patience: float) -> list[Answer]:
        """Fetch what has come since, and give up what was asked too long ago."""
        replies, self._unsent = self._unsent, []
        if self._pending:
            asked_for = list(self._pending)
            for message in self._try(self._fetch, asked_for) or ():
                replies += self._take(message)
        now = time.monotonic()
        for key, pending in list(self._pending.items()):
            long = patience if pending.site else min(patience, HELLO)
            if pending.site in self._moved or now - pending.at > long:
                del self._pending[key]
                why = "it came back" if pending.site in self._moved else "no answer"
                if pending.site:
                    replies.append(Answer(pending, None, why))
        self._moved.clear()
        return replies

    def _take(self, message: Message) -> list[Answer]:
        key = message.metadata.reply_to_message_id
        first = self._pending.pop(key, None)
        pending = first or self._answered.get(key)
        if pending is None:
            return []
        self._answered[key] = pending
        while len(self._answered) > KEPT:
            del self._answered[next(iter(self._answered))]
        answer = Answer.of(pending, message, first is not None)
        if pending.site:
            return [answer]
        records = answer.content.config_records if answer.content else {}
        hello: Mapping[str, Any] = records.get("hello", {})
        if self._named:  # since it was asked
            self._refuse(pending.node, "it was registered without a name")
        elif "site" in hello:
            self._meet(pending.node, str(hello["site"]))
        else:
            words = printable(answer.why)
            log.warning("node %s does not say which site it is: %s", pending.node, words)
        return []

    def _meet(self, node: int, site: str, stranger: str = "") -> None:
        if site not in self._sites:
            why = stranger or f"{site[:80]!r} is no site of this job"
            self._refuse(node, why)
            self._site[node] = ""
            return
        self._site[node] = site
        if self._node.get(site, node) != node:
            self._moved.append(site)
        self._node[site] = node

    def _trust_names(self, name: str) -> None:
        """From the first site on that was registered by name, believe no mere word."""
        if self._named or name not in self._sites:
            return
        self._named = True
        for node in [node for node, site in self._site.items() if site]:
            site = self._site.pop(node)
            self._node.pop(site, None)
            self._moved.append(site)  # what it was asked for is given up
            self._refuse(node, "it was registered without a name")

    def _refuse(self, node: int, why: str) -> None:
        if self._refused.get(node) != why:
            self._refused[node] = why
            self._unreported.append(f"node {node}: {why}")
            log.warning("node %s is refused: %s", node, why)

    def _send(self, parcels: list[tuple[Pending, RecordDict]], group: str) -> None:
        messages = [
            Message(content, pending.node, pending.kind, group_id=group)
            for pending, content in parcels
        ]
        sent = self._try(self._grid.push_messages, messages) if messages else []
        keys = sent or [""] * len(parcels)  # it has failed, or finds it too large
        for key, (pending, _) in zip(keys, parcels, strict=True):
            if key:
                self._pending[key] = pending
            elif pending.site:
                self._unsent.append(Answer(pending, None, "it could not be sent"))

    def _try(self, call: Callable[..., Any], *args: Any) -> Any:
        """Ask the SuperLink; nothing if it fails.

        One that dies in the middle of a message says so in many ways, and is back soon:
        what it has lost is asked for again. A failure that lasts is raised.
        """
        name = getattr(call, "__name__", "pull_messages")
        try:
            result = call(*args)
        except Exception as error:
            now = time.monotonic()
            if now - self._failing.setdefault(name, now) > OUTAGE:
                raise
            words = printable(f"{type(error).__name__}: {error}", lines=True)
            log.warning("the SuperLink fails: %s", words)
            return None
        self._failing.pop(name, None)
        return result


def _key(info: Any) -> bytes:
    """The public key of a node; nothing if it has none that can be read."""
    try:
        return canonical(info.public_key)
    except ValueError:
        return b""

"""Sites behind Flower's nodes: which node is which site, what it was asked, what it answers."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from focusfl.core.validation import printable
from focusfl.flower.identity import canonical
from focusfl.flower.protocol import Wired
from focusfl.flower.records import to_records

log = logging.getLogger(__name__)

HELLO = 30.0  # seconds until a node that has not said who it is is asked again
OUTAGE = 120.0  # seconds for which the SuperLink may fail us before we give up
STALL = 15.0  # seconds after which messages fetched together are fetched one by one
PROMPT = 2.0  # seconds in which a message fetched alone arrives, unless its sender stalls


class Pending(NamedTuple):
    """A message that was sent, and may be answered."""

    kind: str  # train, evaluate or query, as Flower calls it
    node: int
    site: str  # empty until the node has said which site it is
    sent_at: float  # by time.monotonic, in seconds
    number: int | None = None  # the round


class Answer(NamedTuple):
    """What came of a message: an answer, or why there will be none."""

    pending: Pending
    content: RecordDict | None
    why: str = ""  # there is no content

    @property
    def site(self) -> str:
        return self.pending.site


class Link:
    """A grid of Flower's, seen as sites.

    With `keys`, a node is the site whose key it has, and no other node is a site. Without,
    a node that was registered by name is the site of that name. While there are such nodes,
    no other is taken at its word, and the first of two with one name has it until it is gone.
    Where no node has a name, each is asked who it is, and the newest is believed. A site that
    comes back as another node is followed there.

    Args:
        grid: Flower's.
        sites: names of all sites of the job.
        keys: sites by their public keys, as `identity.read_keys` gives them.
    """

    def __init__(self, grid: Grid, sites: Sequence[str], keys: Mapping[bytes, str] | None = None):
        self._grid, self._sites, self._keys = grid, frozenset(sites), keys
        self._fetcher = Fetcher(grid.pull_messages)
        self._named = keys is not None  # nodes are known by more than their word
        self._refused: dict[int, str] = {}  # why, by node
        self._unreported: list[str] = []  # refusals
        self._site: dict[int, str] = {}  # by node; empty: a stranger
        self._node: dict[str, int] = {}  # by site: its newest
        self._pending: dict[str, Pending] = {}  # by Flower's id of the message
        self._moved: list[str] = []  # sites that have come back as another node
        self._unsent: list[Answer] = []
        self._failing: dict[str, float] = {}  # since when, by the name of Flower's call

    def look(self) -> list[str]:
        """Find out which sites are online; greet nodes that are new."""
        nodes = {n.node_id: n for n in self._try(self._grid.get_nodes) or ()}
        if not self._named and any(info.name in self._sites for info in nodes.values()):
            # From now on no node is taken at its word: what was asked of such is given up.
            self._named = True
            self._moved += self._node
            self._site.clear()
            self._node.clear()
        greeted = {pending.node for pending in self._pending.values() if not pending.site}
        for node, info in nodes.items():
            if node in self._site or node in greeted:
                continue
            if self._keys is not None:
                site = self._keys.get(_key(info), "")
                self._meet(node, site, "it has the key of no site")
            elif info.name:
                holder = self._node.get(info.name)
                if holder in nodes:
                    self._refuse(node, f"node {holder} is {info.name!r} already")
                else:
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

    @property
    def owing(self) -> set[str]:
        """Sites that owe a reply to a request of a round."""
        return {pending.site for pending in self._pending.values() if pending.kind == "train"}

    def ask(self, requests: Iterable[tuple[str, int | None, Wired]], kind: str, group: str) -> None:
        """Send a message each to some sites that are online.

        Args:
            requests: (site, number of the round or turn, message).
            kind: train or evaluate.
            group: Flower's name for messages that belong together.
        """
        now = time.monotonic()
        self._send(
            [
                (Pending(kind, self._node[site], site, now, number), to_records(wired))
                for site, number, wired in requests
            ],
            group,
        )

    def poll(self, patience: float) -> list[Answer]:
        """Fetch what has come since, and give up what was asked `patience` seconds ago."""
        answers, self._unsent = self._unsent, []
        if self._pending:
            for message in self._try(self._fetcher.fetch, list(self._pending)) or ():
                # What was given up, or has come before, is not pending any more.
                pending = self._pending.pop(message.metadata.reply_to_message_id, None)
                if pending is None:
                    continue
                if message.has_error():
                    why = f"error {message.error.code}: {message.error.reason}"
                    answer = Answer(pending, None, why)
                else:
                    answer = Answer(pending, message.content)
                if pending.site:
                    answers.append(answer)
                else:
                    self._greet(answer)
        now = time.monotonic()
        for key, pending in list(self._pending.items()):
            long = patience if pending.site else min(patience, HELLO)
            if pending.site in self._moved or now - pending.sent_at > long:
                del self._pending[key]
                why = "it came back" if pending.site in self._moved else "no answer"
                if pending.site:
                    answers.append(Answer(pending, None, why))
        self._moved.clear()
        return answers

    def _greet(self, answer: Answer) -> None:
        """Take a node at its word about which site it is, unless names are known."""
        node = answer.pending.node
        records = answer.content.config_records if answer.content else {}
        hello: Mapping[str, Any] = records.get("hello", {})
        if self._named:  # since it was asked
            self._refuse(node, "it was registered without a name")
        elif "site" in hello:
            self._meet(node, str(hello["site"]))
        else:
            words = printable(answer.why)
            log.warning("node %s does not say which site it is: %s", node, words)

    def _meet(self, node: int, site: str, stranger: str = "") -> None:
        """Note which site a node is; refuse it if it is none."""
        if site not in self._sites:
            self._refuse(node, stranger or f"{site[:80]!r} is no site of this job")
            self._site[node] = ""
            return
        self._site[node] = site
        if self._node.get(site, node) != node:
            self._moved.append(site)
        self._node[site] = node

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
        """Call the SuperLink; give None if it fails.

        A SuperLink that dies in the middle of a message says so in many ways, and is back
        soon: what it has lost is asked for again. A failure that lasts is raised.
        """
        try:
            result = call(*args)
        except Exception as error:
            now = time.monotonic()
            if now - self._failing.setdefault(call.__name__, now) > OUTAGE:
                raise
            words = printable(f"{type(error).__name__}: {error}", lines=True)
            log.warning("the SuperLink fails: %s", words)
            return None
        self._failing.pop(call.__name__, None)
        return result


def _key(info: Any) -> bytes:
    """Give the public key of a node; empty if it has none that can be read."""
    try:
        return canonical(info.public_key)
    except ValueError:
        return b""


class Fetcher:
    """Fetches answers so that one which never ends keeps no other waiting.

    Flower hands out an answer when a site begins to send it and then waits for the rest:
    for minutes, if that site has died or was refused. So a fetch of everything that takes
    too long is left to itself, and the same answers are fetched one by one: those that stall
    again are their senders' fault, and all others are fetched without them.

    Args:
        pull: Flower's `pull_messages`.
    """

    def __init__(self, pull: Callable[[Sequence[str]], Iterable[Message]]):
        self._pull = pull
        self._calls: dict[Future[list[Message]], list[str]] = {}  # that may still go on: ids
        self._common: Future[list[Message]] | None = None  # of these, the one for all answers

    def fetch(self, ids: Sequence[str]) -> list[Message]:
        """Give the answers that have come to these messages of ours.

        Raises:
            Exception: What Flower raises, where no answer has come.
        """
        if self._common is not None and not self._common.done():
            common = self._calls[self._common]
            self._common = None  # its answers come when it is done
            self._start([[key] for key in common if key in ids], PROMPT)
        slow = [keys for call, keys in self._calls.items() if not call.done()]
        stalled = {keys[0] for keys in slow if len(keys) == 1}
        if prompt := [key for key in ids if key not in stalled]:
            (self._common,) = self._start([prompt], STALL)
        done = [call for call in self._calls if call.done()]
        for call in done:
            del self._calls[call]
        errors = [error for call in done if (error := call.exception())]
        messages = [message for call in done if not call.exception() for message in call.result()]
        if errors and not messages:
            raise errors[0]
        return messages

    def _start(self, parts: list[list[str]], patience: float) -> list[Future[list[Message]]]:
        """Start a call for each part, and wait for them, `patience` seconds at most."""
        calls: list[Future[list[Message]]] = [Future() for _ in parts]
        for call, ids in zip(calls, parts, strict=True):
            # A daemon, as no executor's are: a server app that is done does not wait for it.
            threading.Thread(target=self._run, args=(call, ids), daemon=True).start()
            self._calls[call] = ids
        wait(calls, patience)
        return calls

    def _run(self, call: Future[list[Message]], ids: list[str]) -> None:
        try:
            call.set_result(list(self._pull(ids)))
        except Exception as error:
            call.set_exception(error)

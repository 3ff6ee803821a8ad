"""Bugs that somebody could have written, planted in the protocol."""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import focusfl.files
from focusfl.engines.protocol import (
    ProtocolServer,
    Site,
    books,
    files,
    format,
    messages,
    requirements,
    snapshots,
)
from focusfl.engines.protocol.books import Books
from focusfl.engines.protocol.entries import Entries
from focusfl.engines.protocol.incidents import Incidents
from focusfl.engines.protocol.rules import Rules


class Bug(NamedTuple):
    """Lines that were written wrongly, and a seed whose sequence shows it."""

    name: str
    seed: int
    changes: list[tuple[Callable, str, str]]  # where, what is right, what is wrong


REPEATED = "head.digest == state.request_digest"
VOID = "if request is None or reply.seq != request.seq:"
HELD = "(s for s in snapshots if s[:2] == (request.base, request.digest)), None"

BUGS = [
    Bug("a file is renamed before it is synced", 1, [
        (focusfl.files.renamed, "sync(path)", "pass"),
    ]),
    Bug("the folder of a file is not synced", 1, [
        (focusfl.files.renamed, "sync(target.parent)", "pass"),
    ]),
    Bug("the folder of a folder is not synced", 1, [
        (files.make_folder, "sync(parent)", "pass"),
    ]),
    Bug("files are written in place", 1, [
        (files.save, "renamed(path, private=True, before=before) as part,", ""),
        (files.save, "open(part,", "open(path,"),
    ]),
    Bug("a site knows the push that was counted by its number alone", 169, [
        (Site._base, "s[:2] == (request.base, request.digest)", "s[0] == request.base"),
    ]),
    Bug("memory moves on whether or not the push was counted", 5, [
        (Site._base, HELD, "iter(snapshots[1:]), None"),
    ]),
    Bug("memory stays behind though the push was counted", 0, [
        (Site._base, HELD, "iter(snapshots[:1]), None"),
    ]),
    Bug("memory outlives its epoch", 6, [
        (Site._base, "if request.base == 0:\n        return new",
         "if request.base == 0:\n        return state.acked if state else new"),
    ]),
    Bug("a lost memory is not said to be lost", 9, [
        (Site._base, "says so\", self.site, self.job)\n        return None",
         "says so\", self.site, self.job)\n        return new"),
    ]),
    Bug("a push is settled once more with every request", 5, [
        (Site._reply, "memory = self._settled(request, trees, acked)",
         "memory = self._settled(request, trees, acked); acked = acked._replace("
         "memory=memory)"),
    ]),
    Bug("stale requests are answered", 2, [
        (Site._reply, "if state and request.place <= state.place:", "if False:"),
    ]),
    Bug("the last answer is repeated to any later request", 0, [
        (Site._reply, REPEATED, "request.place >= state.place"),
    ]),
    Bug("an answer is repeated to whoever asks under the same number", 11, [
        (messages.validate_reply,
         '("incarnation", reply.incarnation, ledger.incarnation),', ""),
        (Site._reply, REPEATED, "request.place == state.place"),
    ]),
    Bug("a site that is ahead refuses for ever", 6, [
        (Site._behind, "if request.incarnation == state.incarnation:", "if True:"),
    ]),
    Bug("nothing follows from a site that is ahead", 6, [
        (Incidents.report, "max(self._latest, reply.latest)", "0"),
    ]),
    Bug("a server that comes back is the same one as before", 6, [
        (Rules.next_life, "incarnation=token_hex(8), ", ""),
    ]),
    Bug("a server that comes back gives out the same numbers again", 2, [
        (Rules.next_life, "(ledger.clock // LIFE + 1) * LIFE", "ledger.clock"),
    ]),
    Bug("pushes are acknowledged before the books are on disk", 0, [
        (Books.save, "files.save(", "ledger.current % 2 or files.save("),
    ]),
    Bug("damaged books take the place of the good ones before them", 6, [
        (Books.save, "self._before if self._sound else None", "self._before"),
    ]),
    Bug("lines are removed that the books before the last name", 46, [
        (Books.save, "self._sweep({*named, *self._named})", "self._sweep({*named})"),
    ]),
    Bug("lines that changed are not in the books", 0, [
        (Entries.block, "np.fromiter(which,", "np.fromiter([*which][1:],"),
        (Entries.block, "len(which)", "max(0, len(which) - 1)"),
    ]),
    Bug("what the open round has counted is not in the books", 5, [
        (books.decode_ledger, "counted=counted,", "counted=(),"),
    ]),
    Bug("an answer counts that was given up", 32, [
        (messages.validate_reply, VOID,
         "if request is None or reply.seq > request.seq:"),
    ]),
    Bug("an answer counts twice", 32, [
        (messages.validate_reply, VOID, "if request is None:"),
        (messages.validate_reply, "if reply.seq <= applied:", "if False:"),
        (messages.validate_reply, "if reply.base != applied:", "if False:"),
        (messages.validate_reply, "reply.grads_done != request", "0 and request"),
        (messages.validate_reply, "if reply.round != request.round:", "if False:"),
    ]),
    Bug("what is late counts for every algorithm", 214, [
        (requirements._takes_late, "return False", "return True"),
    ]),
    Bug("a loss that was reported is forgotten", 48, [
        (Incidents.restarts, "lost = self.lost - {*ledger.copies}", "lost = ()"),
    ]),
    Bug("a new epoch asks those who have left", 1, [
        (Entries.new_epoch, "& (GONE | BARRED)", "& 0"),
    ]),
    Bug("the copy of an earlier push is kept", 0, [
        (Rules.count, "copies=copies | (", "copies=ledger.copies or copies | ("),
    ]),
    Bug("copies do not outlive the server", 15, [
        (books.decode_ledger, 'trees.get("copies", {})', "{}"),
    ]),
    Bug("a goodbye is not weighed", 226, [
        (Rules.count, "if self.weights is not None:",
         'if self.weights is not None and reply.kind == "push":'),
    ]),
    Bug("what settles a push is kept for a round", 5, [
        (Rules.close, "if index in rounds", "if index == str(rd.index)"),
    ]),
    Bug("a site leaves though the server's answer moves its memory", 135, [
        (snapshots.retract, "if read_by_settle(", "if False and ("),
    ]),
    Bug("what a far too large gradient took is not mended", 388, [
        (Incidents.restarts, "if ledger.spiked:", "if False:"),
        (ProtocolServer.close_round,
         "why = why or strayed(ledger.reach, ledger.server.x)", "pass"),
    ]),
    Bug("checksums are not compared", 20, [
        (format._array, "digest_of(blob) != leaf[2]", "False"),
    ]),
]  # fmt: skip


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have the protocol written like this for a while."""
    with ExitStack() as stack:
        for where, right, wrong in bug.changes:
            stack.enter_context(_written(where, right, wrong))
        yield


@contextmanager
def _written(where: Callable, right: str, wrong: str) -> Iterator[None]:
    module, owner = sys.modules[where.__module__], where.__qualname__.rpartition(".")[0]
    holder = getattr(module, owner) if owner else module
    now = inspect.unwrap(getattr(holder, where.__name__))
    code = SOURCES.get(now) or textwrap.dedent(inspect.getsource(now))
    if code.count(right) != 1:
        raise ValueError(f"{where.__qualname__} does not say {right!r} once.")
    code = code.replace(right, wrong)
    made: dict[str, Any] = {}
    exec(code, vars(module), made)
    new = made[where.__name__]
    SOURCES[new] = code
    old = getattr(holder, where.__name__)
    holders = [holder] if owner else [
        other for name, other in list(sys.modules.items())
        if name.startswith("focusfl") and vars(other).get(where.__name__) is old
    ]  # fmt: skip
    with ExitStack() as stack:
        for one in holders:
            stack.enter_context(patch.object(one, where.__name__, new))
        yield


SOURCES: dict[Any, str] = {}  # of what was planted

"""The participant's side: two memories on disk, and the answer to a request."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl import tree
from focusfl.core import Algorithm, Batch, Client, GradFn
from focusfl.engines.protocol import files
from focusfl.engines.protocol.format import (
    Fields,
    Header,
    Refused,
    Wired,
    check_alike,
    check_fields,
    encode,
    header,
    leaves,
    pack,
    restore,
    unpack,
)
from focusfl.engines.protocol.messages import Answer, Ask, read_ask, read_round
from focusfl.engines.protocol.snapshots import (
    Slot,
    farewell,
    newcomer,
    settle,
    work,
)
from focusfl.tree import Tree

REPLY = "reply "  # before the names of the reply's entries in a state file
SECTIONS = {"down", "settle", "start", "memory"}  # what a request may carry

log = logging.getLogger(__name__)


class State(NamedTuple):
    """What is on disk. The server has counted `acked`; whether `pending`, it will say.

    Nothing is ever written but with a new answer, so that both are always there. So is
    that answer.
    """

    epoch: int
    acked: Slot
    pending: Slot


@dataclass(frozen=True)
class Site:
    """One participant of one job, known by names that outlive processes and nodes.

    A value: what changes is on disk, and one process at a time works on it.
    """

    algorithm: Algorithm
    folder: str | Path
    job: str
    site: str

    def __post_init__(self):
        files.check_name("job", self.job)
        files.check_name("site", self.site)

    def answer(
        self,
        request: Wired,
        grad_fn: GradFn,
        batch_of: Callable[[int], Any] | None = None,
    ) -> Wired:
        """Do one's part of a round; what was done is on disk when this returns.

        `batch_of` gives the batch of a gradient, by how many came before it.
        """
        return self._reply(request, grad_fn, batch_of)

    def goodbye(self, request: Wired) -> Wired:
        """Answer by taking back all one has contributed, to leave for good.

        The others go on as if this site's objective were zero: they find the minimum
        of the mean over those who remain. Raise if the algorithm has no such push.
        """
        return self._reply(request, None, None)

    def memory(self, seq: int) -> Client | None:
        """The memory that belongs to a push, or None if it is not on disk."""
        state = self._load()
        slots = [state.acked, state.pending] if state else []
        return next((slot.memory for slot in slots if slot.seq == seq), None)

    def _reply(
        self,
        request: Wired,
        grad_fn: GradFn | None,
        batch_of: Callable[[int], Any] | None,
    ) -> Wired:
        head = header(request)
        ask = read_ask(head)
        self._check_ours(ask)
        files.make_folder(self._path.parent)
        with files.lock(self._path, wait=True):
            state = self._load()
            if state and (ask.epoch, ask.seq) == (state.epoch, state.pending.seq):
                return self._said()  # asked twice: one of the two did not get through
            if state and (ask.epoch, ask.seq) < (state.epoch, state.pending.seq):
                raise Refused(
                    f"request {ask.seq} of epoch {ask.epoch} is stale: {self.site} has "
                    f"answered {state.pending.seq} of epoch {state.epoch}. A server "
                    "that has lost its checkpoint must give the job another name."
                )
            trees = self._read(request, head)
            new = newcomer(self.algorithm, trees["start"])
            acked = self._base(ask, trees, state, new)
            if acked is None:
                return self._encode(ask, "lost", ask.number, {})
            if grad_fn is None:
                kind, number = "goodbye", ask.number
                memory, up = farewell(
                    self.algorithm, acked, trees["down"], ask.rd, new.memory
                )
            else:
                kind, number = "push", ask.number + ask.local_steps
                memory, up = work(
                    self.algorithm, acked, trees["down"], ask.rd,
                    lambda x, batch: alike(x, grad_fn(x, batch)),
                    map(batch_of or partial(Batch, None), range(ask.number, number)),
                )  # fmt: skip
            check_alike(memory, new.memory)
            sections = {"up": up, "memory": memory} if ask.copies else {"up": up}
            reply = self._encode(ask, kind, number, sections)
            pending = Slot(ask.seq, header(reply).digest, memory)
            self._save(State(ask.epoch, acked, pending), reply)
            return reply

    def _read(self, request: Wired, head: Header) -> dict[str, Tree]:
        """Unpack a request; what it has to carry is there, in the right shapes."""
        if not {path.split("/")[0] for path in head.leaves} <= SECTIONS:
            raise Refused("it carries what no request carries.")
        trees = unpack(request, head)
        down = trees.setdefault("down", {})
        if "start" not in trees:  # newcomers are all the same: its shape will do
            if not isinstance(down, dict) or "x" not in down:
                raise Refused("it carries no model.")
            trees["start"] = tree.zeros(down["x"])
        like = self.algorithm.broadcast(self.algorithm.init(trees["start"])[0])
        check_alike(down, like)
        for name, part in trees.setdefault("settle", {}).items():
            check_alike(part, like.get(name, {}))
        return trees

    def _base(
        self, ask: Ask, trees: dict[str, Tree], state: State | None, new: Slot
    ) -> Slot | None:
        """Find the memory the server counts on; None if it is lost."""
        if ask.base == 0:
            return new
        if not leaves(new.memory):
            return new._replace(seq=ask.base, digest=ask.digest)
        slots = (state.acked, state.pending) if state else ()
        slot = next((s for s in slots if s[:2] == (ask.base, ask.digest)), None)
        if slot is None and "memory" in trees:
            memory = restore(new.memory, trees["memory"])
            slot = Slot(ask.base, ask.digest, memory)
        if slot is None:
            log.warning("%s has lost its memory of %s: says so", self.site, self.job)
            return None
        check_alike(slot.memory, new.memory)
        if state and slot is state.acked:
            return slot
        try:
            answer, counted = trees["settle"], read_round(ask.counted)
            return settle(self.algorithm, slot, answer, counted)
        except KeyError as error:
            raise Refused(f"it does not carry {error}, which settles a push.") from None

    def _check_ours(self, ask: Ask) -> None:
        ours = repr(self.algorithm), self.job, self.site
        theirs = ask.algorithm, ask.job, ask.site
        names = ("algorithm", "job", "site")
        for name, own, other in zip(names, ours, theirs, strict=True):
            if own != other:
                raise Refused(f"it is for {name} {other[:80]!a}; this is {own}.")

    def _encode(
        self, ask: Ask, kind: str, number: int, sections: dict[str, Tree]
    ) -> Wired:
        answer = Answer(
            kind, ask.algorithm, ask.job, ask.site, ask.epoch, ask.round, ask.seq,
            ask.base, number,
        )  # fmt: skip
        return encode(answer._asdict(), pack(sections))

    @property
    def _path(self) -> Path:
        return Path(self.folder).expanduser() / self.job / f"{self.site}.state"

    def _save(self, state: State, reply: Wired) -> None:
        slots = {"acked": state.acked, "pending": state.pending}
        fields: Fields = {name: list(slot[:2]) for name, slot in slots.items()}
        fields |= {"kind": "state", "algorithm": repr(self.algorithm), "job": self.job}
        fields |= {"site": self.site, "epoch": state.epoch}
        memories = pack({name: slot.memory for name, slot in slots.items()})
        said = {REPLY + name: blob for name, blob in reply.items()}
        files.save(self._path, encode(fields, memories) | said)

    def _load(self) -> State | None:
        """Read what is on disk; what is damaged counts as lost."""
        try:
            own = files.load(self._path, lambda name: not name.startswith(REPLY))
            if own is None:
                return None
            head = header(own, own=True)
            check_fields(
                head.fields, kind=str, algorithm=str, job=str, site=str, epoch=int,
                acked=list, pending=list,
            )  # fmt: skip
            trees = unpack(own, head)
        except Refused as error:
            log.warning("%s: %s It counts as lost.", self._path, error)
            return None
        fields = head.fields
        if fields["algorithm"] != repr(self.algorithm):
            raise ValueError(
                f"{self._path} belongs to {fields['algorithm']}; this site runs "
                f"{self.algorithm!r}. Give the job another name."
            )
        # Of one number, for the structure alone: where it has leaves, trees may be.
        like = self.algorithm.init(np.zeros(()))[1]
        acked, pending = (
            Slot._make([*fields[name], restore(like, trees.get(name, {}))])
            for name in ("acked", "pending")
        )
        return State(fields["epoch"], acked, pending)

    def _said(self) -> Wired:
        """The last answer, as it went out."""
        entries = files.load(self._path, lambda name: name.startswith(REPLY)) or {}
        return {name.removeprefix(REPLY): blob for name, blob in entries.items()}


def alike(x: Tree, gradient: Tree) -> Tree:
    """A gradient as numpy arrays in the dtype of the model."""
    try:
        return tree.map(_leaf_alike, x, gradient)
    except (KeyError, TypeError, IndexError):
        raise ValueError(
            "grad_fn must give a gradient like the model: nested dicts with the same "
            "names."
        ) from None


def _leaf_alike(a: np.ndarray, g: Any) -> np.ndarray:
    g = np.asarray(g, a.dtype)
    if g.shape != a.shape:
        raise ValueError(f"a gradient has shape {g.shape}; its model {a.shape}.")
    return g

"""A site: its reply to a request. What it writes to disk is in site_state.py."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from focusfl import tree
from focusfl.core import Algorithm, Batch, Client, GradFn
from focusfl.engines.client_round import client_round
from focusfl.engines.protocol.account import Account, Spent, Terms, drawn, once
from focusfl.engines.protocol.files import check_name
from focusfl.engines.protocol.format import (
    Header,
    Refused,
    Wired,
    check_alike,
    encode,
    header,
    leaves,
    pack,
    restore,
    unpack,
)
from focusfl.engines.protocol.messages import Reply, Request, read_request, read_round
from focusfl.engines.protocol.site_state import SiteFile, SiteState
from focusfl.engines.protocol.snapshots import (
    Snapshot,
    newcomer,
    retract,
)
from focusfl.engines.protocol.uplink import with_noted_codec
from focusfl.tree import Tree

SECTIONS = {"down", "settle", "start", "memory"}  # what a request may carry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """One participant of one job, known by names that outlive processes and nodes.

    A value: what changes is on disk, and one process at a time works on it.
    """

    algorithm: Algorithm
    folder: str | Path
    job: str
    site: str
    # By which rule its gradients are private; then `grad_fn` gets batches `Drawn`.
    private: Terms | None = field(default=None, kw_only=True)
    packs: ClassVar[bool] = True  # pushes of a codec travel as its bytes

    def __post_init__(self):
        check_name("job", self.job)
        check_name("site", self.site)

    def answer(
        self,
        message: Wired,
        grad_fn: GradFn,
        batch_of: Callable[[int], Any] | None = None,
    ) -> Wired:
        """The reply to a request; on disk when this returns.

        Args:
            message: the request, as it came.
            grad_fn: (x, batch) -> the gradient of this site's objective, like x.
            batch_of: the batch of a gradient, by how many came before it.

        Raises:
            Refused: If the request is damaged, stale, or for somebody else.
        """
        return self._reply(message, grad_fn, batch_of)

    def goodbye(self, message: Wired) -> Wired:
        """The reply that takes back all this site has contributed, to leave for good.

        The others go on as if this site's objective were zero: they find the minimum
        of the mean over those who remain. Raise if the algorithm has no such push.
        """
        return self._reply(message, None, None)

    def memory(self, seq: int) -> Client | None:
        """The memory that belongs to a push, or None if it is not on disk."""
        state = self.disk.load()
        snapshots = [state.acked, state.pending] if state else []
        return next(
            (snapshot.memory for snapshot in snapshots if snapshot.seq == seq), None
        )

    def _reply(
        self,
        message: Wired,
        grad_fn: GradFn | None,
        batch_of: Callable[[int], Any] | None,
    ) -> Wired:
        head = header(message)  # checked; its digest is of the whole message
        request = read_request(head)
        self._check_ours(request)
        with self.disk.locked():
            state = self.disk.load()
            if state and head.digest == state.request_digest:
                return self.disk.last_reply()  # one of the two did not get through
            trees = self._read(message, head)
            if state and request.place <= state.place:
                return self._behind(request, state)
            new = newcomer(self.algorithm, trees["start"])
            # What the server has counted last. Disk has both: the memory after the push
            # it is known to have counted, and that after the last reply.
            acked = self._base(request, trees, state, new)
            if acked is None:
                return self._encode(request, "lost", request.grads_done)
            memory = self._settled(request, trees, acked)
            algorithm, codec = with_noted_codec(self.algorithm, self.packs)
            if grad_fn is None:
                kind, done = "goodbye", request.grads_done
                memory, up = retract(
                    algorithm, memory, trees["down"], request.rd, new.memory
                )
            else:
                kind, done = "push", request.grads_done + request.local_steps
                numbers = range(request.grads_done, done)
                batches: Any = map(batch_of or partial(Batch, None), numbers)
                if self.account:
                    try:
                        self.account.spend(request.local_steps, request.grads_done)
                    except Spent as why:
                        log.warning("%s takes part no more: %s", self.site, why)
                        return self._encode(request, "spent", request.grads_done)
                    grad_fn, batches = once(grad_fn), drawn(batches)
                memory, up = client_round(
                    algorithm, memory, trees["down"],
                    partial(_gradient, grad_fn), batches, request.rd,
                )  # fmt: skip
            check_alike(memory, new.memory)
            up = codec.packed(up) if codec else up
            sections = {"up": up, "memory": memory} if request.copies else {"up": up}
            reply = self._encode(request, kind, done, sections)
            pending = Snapshot(request.seq, header(reply).digest, memory)
            state = SiteState(
                request.epoch, acked, pending, request.incarnation, head.digest
            )
            self.disk.save(state, reply)
            return reply

    def _behind(self, request: Request, state: SiteState) -> Wired:
        """The reply to a request that is behind what was answered; changes nothing.

        Of the same server, it is an old one. Of another, that may be so too, and then
        nobody will count what we say; or else the server knows less than we do.
        """
        if request.incarnation == state.incarnation:
            raise Refused(
                f"request {request.seq} of epoch {request.epoch} is stale: {self.site} "
                f"has answered {state.pending.seq} of epoch {state.epoch}."
            )
        log.warning("%s is ahead of the server of %s: says so", self.site, self.job)
        return self._encode(request, "ahead", request.grads_done, latest=state.epoch)

    def _read(self, message: Wired, head: Header) -> dict[str, Tree]:
        """Unpack a request; what it has to carry is there, in the right shapes."""
        if not {path.split("/")[0] for path in head.leaves} <= SECTIONS:
            raise Refused("it carries what no request carries.")
        trees = unpack(message, head)
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
        self,
        request: Request,
        trees: dict[str, Tree],
        state: SiteState | None,
        new: Snapshot,
    ) -> Snapshot | None:
        """Find the memory the server counts on; None if it is lost."""
        if request.base == 0:
            return new
        if not leaves(new.memory):
            return new._replace(seq=request.base, digest=request.digest)
        snapshots = (state.acked, state.pending) if state else ()
        snapshot = next(
            (s for s in snapshots if s[:2] == (request.base, request.digest)), None
        )
        if snapshot is None and "memory" in trees:
            memory = restore(new.memory, trees["memory"])
            snapshot = Snapshot(request.base, request.digest, memory)
        if snapshot is None:
            log.warning("%s has lost its memory of %s: says so", self.site, self.job)
            return None
        check_alike(snapshot.memory, new.memory)
        return snapshot

    def _settled(
        self, request: Request, trees: dict[str, Tree], acked: Snapshot
    ) -> Client:
        """The memory with what this server said after the round that counted it."""
        if not acked.seq or not leaves(acked.memory):
            return acked.memory
        try:
            told, counted = trees["settle"], read_round(request.counted)
            return self.algorithm.settle(acked.memory, told, counted)
        except KeyError as error:
            raise Refused(f"it does not carry {error}, which settles a push.") from None

    def _check_ours(self, request: Request) -> None:
        ours = repr(self.algorithm), self.job, self.site
        theirs = request.algorithm, request.job, request.site
        names = ("algorithm", "job", "site")
        for name, own, other in zip(names, ours, theirs, strict=True):
            if own != other:
                raise Refused(f"it is for {name} {other[:80]!a}; this is {own}.")

    def _encode(
        self,
        request: Request,
        kind: str,
        grads_done: int,
        sections: dict[str, Tree] | None = None,
        latest: int | None = None,
    ) -> Wired:
        reply = Reply(
            kind=kind,
            algorithm=request.algorithm,
            job=request.job,
            site=request.site,
            incarnation=request.incarnation,
            epoch=request.epoch,
            round=request.round,
            seq=request.seq,
            base=request.base,
            grads_done=grads_done,
            latest=request.epoch if latest is None else latest,
        )
        return encode(reply._asdict(), pack(sections or {}))

    @property
    def account(self) -> Account | None:
        """What it has given away, if anybody keeps account."""
        if self.private is None:
            return None
        return Account(self.disk.path.with_suffix(".privacy"), self.private)

    @cached_property
    def disk(self) -> SiteFile:
        return SiteFile(self.algorithm, self.folder, self.job, self.site)


def _gradient(grad_fn: GradFn, x: Tree, batch: Any) -> Tree:
    return alike(x, grad_fn(x, batch))


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

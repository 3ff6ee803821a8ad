"""A site: its reply to a request. It needs no disk unless its gradients are private."""

import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from focusfl.core import Algorithm, Batch, Client, GradFn, tree
from focusfl.core.tree import Tree
from focusfl.flower.protocol.messages import (
    Refused,
    Reply,
    Request,
    Wired,
    decode,
    encode,
    leaves,
    pack,
    unpack,
    unpack_model,
)
from focusfl.flower.protocol.settings import check_name
from focusfl.flower.protocol.uplink import with_recorder
from focusfl.simulation.client_round import client_round

if TYPE_CHECKING:
    from focusfl.privacy.account import Account, Limit, Terms

REPLY = "reply "  # before the names of a reply's parts in the cache

log = logging.getLogger(__name__)


class Inputs(NamedTuple):
    """What a site has read of a request."""

    request: Request
    message: Wired
    down: Any  # the broadcast
    state: Client | None  # that the server names; None: it is not here
    opened: Any = None  # the server's state, where sites replay it


@dataclass(frozen=True)
class Site:
    """One participant of one job, known by a name that outlives processes and nodes.

    Attributes:
        algorithm: the one of the server.
        job: name of the job.
        site: name of this site.
        cache: packed states by version. It may vanish at any time: the version names
            the content, so a cache is never wrong, only empty, and then the server
            sends the state along.
        private: by which rule `grad_fn` clips and adds noise, if it does.
        folder: where a private site keeps its account; it must last.
        limit: the most that a private site may reveal, in all jobs together.
    """

    algorithm: Algorithm
    job: str
    site: str
    cache: MutableMapping[str, bytes] = field(default_factory=dict)
    private: "Terms | None" = field(default=None, kw_only=True)
    folder: str | Path | None = field(default=None, kw_only=True)
    limit: "Limit | None" = field(default=None, kw_only=True)
    compresses: ClassVar[bool] = True  # pushes of a compressor travel as its bytes
    carries: ClassVar[tuple[str, ...]] = ("down", "state")  # parts of a request, the first always

    def __post_init__(self):
        check_name("job", self.job)
        check_name("site", self.site)
        if self.private and self.folder is None:
            raise ValueError("a private site needs a folder that lasts; got none.")

    @cached_property
    def account(self) -> "Account | None":
        """The account of what it has given away, if its gradients are private."""
        if self.private is None or self.folder is None:
            return None
        # Needs more packages than numpy, which is all that other sites have.
        from focusfl.privacy.account import Account

        # Of the site: another name for the job, which its server chooses, opens no other.
        place = Path(self.folder).expanduser() / f"{self.site}.privacy"
        return Account(place, self.job, self.private, self.limit)

    def answer(
        self, message: Wired, grad_fn: GradFn, batch_of: Callable[[int], Any] | None = None
    ) -> Wired:
        """Compute the reply to a request.

        Args:
            message: the request, as it came.
            grad_fn: (x, batch) -> the gradient of this site's objective, like x.
            batch_of: the batch of a gradient, by how many came before it.

        Raises:
            Refused: If the request is malformed, or for somebody else.
            ValueError, ArithmeticError: If what is computed from it is not finite.
        """
        request, name = self._read(message)
        if self.account and self.cache.get("request") == name.encode():
            # Asked twice for the same, as when a reply was lost: noise costs budget, and
            # the mean of two answers would have less of it.
            replies = {k: v for k, v in self.cache.items() if k.startswith(REPLY)}
            return {k.removeprefix(REPLY): v for k, v in replies.items()}
        inputs = self._open(request, message)
        if (state := inputs.state) is None:
            return self._reply(request, "missing")
        # The server counts gradients for the site: batches go on where they stopped, even
        # for a site that has lost everything, and a lost reply repeats its batches.
        done = request.grads_done
        numbers = range(done, done + request.local_steps)
        batches: Any = map(batch_of or partial(Batch, None), numbers)
        if self.account:
            from focusfl.privacy.account import BudgetExceeded, at_most

            try:
                self.account.spend(request.local_steps, done)
            except BudgetExceeded as why:
                log.warning("%s takes part no more: %s", self.site, why)
                return self._reply(request, "spent")
            grad_fn = at_most(request.local_steps, grad_fn)

        def gradient(x: Tree, batch: Any) -> Tree:
            return like_model(x, grad_fn(x, batch))

        algorithm, recorder = self.algorithm, None
        if self.compresses:
            algorithm, recorder = with_recorder(algorithm)
        new, up = client_round(algorithm, state, inputs.down, gradient, batches, request.rd)
        if recorder:
            up = recorder.compressed(up)
        parts, after = self._parts(inputs, up, new)
        reply = self._reply(request, "push", parts)
        new_version = reply["header"].partition(b"\n")[0].decode()
        self._keep(request.version, pack(state), new_version, after)
        if self.account:
            self.cache["request"] = name.encode()
            self.cache.update({REPLY + part: reply[part] for part in reply})
        return reply

    def leave(self, message: Wired) -> Wired:
        """Make the reply by which this site leaves the job for good.

        The server takes its contribution back: the others find the minimum of the mean
        over those who remain.
        """
        return self._reply(self._read(message)[0], "leave")

    def _read(self, message: Wired) -> tuple[Request, str]:
        request, name = decode(message, Request, {*self.carries})
        if self.carries[0] not in message:
            raise Refused("it carries no model.")
        if request.local_steps < 1 or request.num_clients <= 0:
            raise Refused("a round must have clients and local steps.")
        warming = request.round < 0  # the one round whose step is 0
        if warming > self.algorithm.starts_warm or not (request.lr > 0 or warming):
            raise Refused(f"no round {request.round} has a step of {request.lr}.")
        expected = repr(self.algorithm), self.job, self.site
        got = request.algorithm, request.job, request.site
        for what, mine, other in zip(("algorithm", "job", "site"), expected, got, strict=True):
            if mine != other:
                raise Refused(f"it is for {what} {other[:80]!a}; this is {mine}.")
        return request, name

    def _open(self, request: Request, message: Wired) -> Inputs:
        """Read the broadcast, and the state that the server names."""
        # The site has no model of its own: this one says what everything looks like.
        x = unpack_model(message["down"])
        server, like = self.algorithm.init(tree.zeros(x))
        down = unpack(message["down"], self.algorithm.broadcast(server))
        return Inputs(request, message, down, self._state(request, message, like))

    def _parts(self, inputs: Inputs, up: Any, new: Client) -> tuple[dict[str, bytes], bytes]:
        """Give what a push carries, and the state from which the site goes on."""
        del inputs
        after = pack(new)
        return {"up": pack(up), **({"state": after} if self.algorithm.sends_state else {})}, after

    def _state(self, request: Request, message: Wired, like: Client) -> Client | None:
        """Find the state that the server names; None if it is not here."""
        if not leaves(like):
            return like
        blob = message.get("state", self.cache.get(request.version))
        return None if blob is None else unpack(blob, like)

    def _keep(self, version: str, state: bytes, new_version: str, new: bytes) -> None:
        """Cache both states: the server will name one of them.

        This site does not know whether its reply will count.
        """
        self.cache.clear()
        self.cache.update({version: state, new_version: new})

    def _reply(self, request: Request, kind: str, parts: dict[str, bytes] | None = None) -> Wired:
        reply = Reply(
            kind=kind, algorithm=request.algorithm, job=request.job, site=request.site,
            version=request.version, model=request.model, round=request.round,
        )  # fmt: skip
        return encode(reply, parts or {})


def like_model(x: Tree, gradient: Tree) -> Tree:
    """Convert a gradient to arrays in the dtype of the model; ValueError if it is none."""

    def convert(a: np.ndarray, g: Any) -> np.ndarray:
        g = np.asarray(g, a.dtype)
        if g.shape != a.shape:
            raise ValueError(f"a gradient has shape {g.shape}; its model {a.shape}.")
        return g

    try:
        return tree.map(convert, x, gradient)
    except (KeyError, TypeError, IndexError):
        raise ValueError(
            "grad_fn must give a gradient like the model: nested dicts with the same names."
        ) from None

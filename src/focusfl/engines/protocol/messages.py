"""The two kinds of message: a request of the server, and a reply of a site."""

from typing import Any, NamedTuple

from focusfl.core import Round
from focusfl.engines.protocol.format import Header, Refused, check_fields
from focusfl.engines.protocol.snapshots import UNKNOWN

# A push; the last of a site; no memory of `base`; asked later things by another server;
# nothing may be given away any more.
KINDS = ("push", "goodbye", "lost", "ahead", "spent")
NO_PUSH = ("lost", "ahead", "spent")  # with nothing to count


class Request(NamedTuple):
    """The header of a request."""

    algorithm: str
    job: str
    site: str
    incarnation: str  # of the server: another one every time that it is started
    epoch: int
    round: int  # its index in the epoch
    seq: int  # the number its reply must bear
    base: int  # the push of this site that was counted last; 0: none
    digest: str  # that push's checksum
    counted: list  # the round it was counted in: the scalars of a Round
    grads_done: int  # gradients the site has computed up to that push
    lr: float
    local_steps: int
    num_clients: int | float  # N, or the sum of all weights
    copies: bool  # whether the server wants to keep the site's memory as well

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among all requests to a site: later ones are larger."""
        return self.epoch, self.seq

    @property
    def rd(self) -> Round:
        return Round(self.round, self.lr, self.local_steps, self.num_clients, UNKNOWN)


class Reply(NamedTuple):
    """The header of a reply."""

    kind: str  # one of KINDS
    algorithm: str
    job: str
    site: str
    incarnation: str
    epoch: int
    round: int
    seq: int
    base: int  # the push this one builds on
    grads_done: int
    latest: int  # the latest epoch that the site was asked in


def read_request(head: Header) -> Request:
    """Check the header of a request."""
    check_fields(head.fields, **_kinds(Request))
    request = Request(**head.fields)
    if request.local_steps < 1 or request.num_clients <= 0:
        raise Refused("a round must have clients and local steps; it has none.")
    if request.counted:
        read_round(request.counted)
    return request


def read_reply(head: Header) -> Reply:
    """Check the header of a reply."""
    check_fields(head.fields, **_kinds(Reply))
    reply = Reply(**head.fields)
    if reply.kind not in KINDS:
        raise Refused(f"kind must be one of {', '.join(KINDS)}; got {reply.kind!a}.")
    return reply


def read_round(scalars: list[Any]) -> Round:
    """Check the scalars of a round that is over."""
    fields = dict(zip(Round._fields, scalars, strict=False))
    number = int | float  # sums of weights, or counts
    check_fields(
        fields, index=int, lr=float, local_steps=int, num_clients=number,
        num_active=number,
    )  # fmt: skip
    if len(scalars) != len(fields):
        raise Refused(f"a round has {len(fields)} scalars; got {len(scalars)}.")
    return Round(**fields)


def _kinds(kind: type) -> dict[str, Any]:
    return kind.__annotations__

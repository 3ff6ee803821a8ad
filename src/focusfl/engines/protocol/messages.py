"""The two kinds of message, a request of the server and a reply of a site, and which
reply may count."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from focusfl.core import Round
from focusfl.engines.protocol.format import Header, Refused, check_fields
from focusfl.engines.protocol.snapshots import UNKNOWN

if TYPE_CHECKING:
    from focusfl.engines.protocol.ledger import Ledger
    from focusfl.engines.protocol.rules import Rules

# A push; the last of a site; no memory of `base`; asked later things by another server;
# nothing may be given away any more.
KINDS = ("push", "goodbye", "lost", "ahead", "spent")
NO_PUSH = ("lost", "ahead", "spent")  # with nothing to count
LATEST = 1 << 50  # an epoch that no server will ever come to


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


class Receipt(NamedTuple):
    """What became of a reply."""

    status: Literal["applied", "refused", "lost", "ahead", "spent"]
    why: str = ""

    @property
    def applied(self) -> bool:
        return self.status == "applied"


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


def validate_reply(
    rules: "Rules", ledger: "Ledger", request: Request | None, sender: str, reply: Reply
) -> None:
    """Raise Refused unless this is the one reply of its sender that may count now."""
    if sender not in ledger.entries or reply.site != sender:
        raise Refused(f"{ascii(sender)} is not site {reply.site[:80]!a} of this job.")
    for what, got, ours in [
        ("algorithm", reply.algorithm, repr(rules.algorithm)),
        ("job", reply.job, rules.job),
        ("incarnation", reply.incarnation, ledger.incarnation),
        ("epoch", reply.epoch, ledger.epoch),
    ]:
        if got != ours:
            raise Refused(f"it belongs to {what} {str(got)[:80]!a}; this is {ours}.")
    applied = ledger.entries[sender].applied
    if reply.seq <= applied:
        raise Refused(f"push {reply.seq} is old: {applied} was counted.")
    if reply.base != applied:
        raise Refused(f"it builds on push {reply.base}; {applied} was counted.")
    if request is None or reply.seq != request.seq:
        raise Refused(f"push {reply.seq} is void: asked again, or given up.")
    if reply.round != request.round:
        raise Refused(f"it is of round {reply.round}, not of {request.round} as asked.")
    steps = request.local_steps if reply.kind == "push" else 0
    if reply.grads_done != request.grads_done + steps:
        raise Refused(
            f"it counts {reply.grads_done} gradients; {request.grads_done} + {steps}."
        )
    ahead = reply.kind == "ahead"
    if not (ahead or reply.latest == ledger.epoch) or reply.latest >= LATEST:
        raise Refused(f"it cannot know of epoch {reply.latest}.")
    if reply.kind == "lost":
        if applied == 0:
            raise Refused("it has lost nothing: none of its pushes was counted.")
    elif ahead:
        if reply.latest < ledger.epoch:
            raise Refused(f"it is not ahead: this is epoch {ledger.epoch}.")
    elif reply.kind == "spent":
        return  # also if it comes late
    elif request.round < ledger.current and not rules.requirements.late:
        raise Refused(
            f"it is late: the server of {rules.algorithm!r} works with what it knows "
            "now, and cannot count what was made for an earlier round."
        )


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

"""The two kinds of message: what the server asks, and what a site answers."""

from typing import Any, NamedTuple

from focusfl.core import Round
from focusfl.engines.protocol.format import Header, Refused, check_fields
from focusfl.engines.protocol.snapshots import UNKNOWN


class Ask(NamedTuple):
    """The header of a request."""

    algorithm: str
    job: str
    site: str
    epoch: int
    round: int  # its index in the epoch
    seq: int  # the number an answer must bear
    base: int  # the push of this site that was counted last; 0: none
    digest: str  # that push's checksum
    counted: list  # the round it was counted in: the scalars of a Round
    number: int  # gradients the site has computed up to that push
    lr: float
    local_steps: int
    num_clients: int
    copies: bool  # whether the server wants to keep the site's memory as well

    @property
    def rd(self) -> Round:
        return Round(self.round, self.lr, self.local_steps, self.num_clients, UNKNOWN)


class Answer(NamedTuple):
    """The header of a reply."""

    kind: str  # push, goodbye: a last push; lost: the site has no memory of `base`
    algorithm: str
    job: str
    site: str
    epoch: int
    round: int
    seq: int
    base: int  # the push this one builds on
    number: int


def read_ask(head: Header) -> Ask:
    """Check the header of a request."""
    check_fields(head.fields, **_kinds(Ask))
    ask = Ask(**head.fields)
    if ask.local_steps < 1 or ask.num_clients < 1:
        raise Refused("a round must have clients and local steps; it has none.")
    if ask.counted:
        read_round(ask.counted)
    return ask


def read_answer(head: Header) -> Answer:
    """Check the header of a reply."""
    check_fields(head.fields, **_kinds(Answer))
    answer = Answer(**head.fields)
    if answer.kind not in ("push", "goodbye", "lost"):
        raise Refused(f"kind must be push, goodbye or lost; got {answer.kind!a}.")
    return answer


def read_round(scalars: list[Any]) -> Round:
    """Check the scalars of a round that is over."""
    fields = dict(zip(Round._fields, scalars, strict=False))
    check_fields(
        fields, index=int, lr=float, local_steps=int, num_clients=int, num_active=int
    )
    if len(scalars) != len(fields):
        raise Refused(f"a round has {len(fields)} scalars; got {len(scalars)}.")
    return Round(**fields)


def _kinds(kind: type) -> dict[str, type]:
    return kind.__annotations__

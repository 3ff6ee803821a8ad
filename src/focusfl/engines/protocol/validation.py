"""Whether a reply may count, by its header."""

from focusfl.engines.protocol.format import Refused
from focusfl.engines.protocol.ledger import Ledger
from focusfl.engines.protocol.messages import Reply, Request
from focusfl.engines.protocol.rules import Rules

LATEST = 1 << 50  # an epoch that no server will ever come to


def validate_reply(
    rules: Rules, ledger: Ledger, request: Request | None, sender: str, reply: Reply
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

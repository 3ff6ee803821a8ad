"""What a reply must be to count; whatever it is not, it is refused for."""

import math

import numpy as np

from focusfl.core import Message
from focusfl.engines.protocol.format import Refused, leaves
from focusfl.engines.protocol.ledger import Books
from focusfl.engines.protocol.messages import Answer, Ask
from focusfl.engines.protocol.rules import Rules


def check_due(
    rules: Rules, books: Books, owed: Ask | None, sender: str, answer: Answer
) -> None:
    """Raise Refused unless this is the one answer of its sender that may count now."""
    if sender not in books.ledger or answer.site != sender:
        raise Refused(f"{ascii(sender)} is not site {answer.site[:80]!a} of this job.")
    for what, got, ours in [
        ("algorithm", answer.algorithm, repr(rules.algorithm)),
        ("job", answer.job, rules.job),
        ("epoch", answer.epoch, books.epoch),
    ]:
        if got != ours:
            raise Refused(f"it belongs to {what} {str(got)[:80]!a}; this is {ours}.")
    applied = books.ledger[sender].applied
    if answer.seq <= applied:
        raise Refused(f"push {answer.seq} is old: {applied} was counted.")
    if answer.base != applied:
        raise Refused(f"it builds on push {answer.base}; {applied} was counted.")
    if owed is None or answer.seq != owed.seq:
        raise Refused(f"push {answer.seq} is void: asked again, or given up.")
    if answer.round != owed.round:
        raise Refused(f"it is of round {answer.round}, not of {owed.round} as asked.")
    steps = owed.local_steps if answer.kind == "push" else 0
    if answer.number != owed.number + steps:
        raise Refused(f"it counts {answer.number} gradients; {owed.number} + {steps}.")
    if answer.kind == "lost":
        if applied == 0:
            raise Refused("it has lost nothing: none of its pushes was counted.")
    elif owed.round < books.current and not rules.needs.late:
        raise Refused(
            f"it is late: the server of {rules.algorithm!r} works with what it knows "
            "now, and cannot count what was made for an earlier round."
        )


def check_norm(up: Message, most: float | int | None) -> None:
    """Raise Refused if a push is larger than it may be."""
    squares = (float(np.sum(np.square(a, dtype=float))) for a in leaves(up))
    if most is not None and not (norm := math.sqrt(sum(squares))) <= most:
        raise Refused(f"its norm is {norm:.3g}; {most:.3g} is the most it may be.")

"""A participant's part of a round, written once.

The reference engine, the simulator and the sites of a deployment all run this.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from focusfl.core import Algorithm, Batch, Client, GradFn, Local, Message, Round
from focusfl.core.tree import Tree

Step = Callable[[Local, Any], Local]
Repeat = Callable[[Step, Local, Any], Local]  # takes a step for every batch


def one_by_one(step: Step, local: Local, batches: Iterable[Any]) -> Local:
    """Take a step for every batch, in plain Python."""
    return reduce(step, batches, local)


def client_round(
    algorithm: Algorithm,
    client: Client,
    down: Message,
    gradient: GradFn,
    batches: Any,
    rd: Round,
    repeat: Repeat = one_by_one,
) -> tuple[Client, Message]:
    """Pull, take a step for every batch, push; give the new memory and the message."""
    local = repeat(
        lambda local, batch: algorithm.step(local, gradient, batch, rd),
        algorithm.pull(client, down),
        batches,
    )
    return algorithm.push(client, down, local, rd)


def batch_stream(objective: Any, seed: int) -> Any:
    """The key that all batches of a run come from; none if nothing is drawn."""
    if not objective.stochastic:
        return None
    from focusfl.core import random as keys

    return keys.stream(seed, "batch")


def grad_fn(objective: Any, data: Tree) -> GradFn:
    """One client's gradient, as algorithms call it."""
    return lambda x, batch: objective.grad(x, data, batch)


def batches_of(objective: Any, key: Any, client: Any) -> Callable[[Any], Any]:
    """What a client's gradients are drawn from, by how many it has computed before;
    nothing if the objective draws nothing."""
    if not objective.stochastic:
        return lambda number: None
    from focusfl.core import random as keys

    stream = keys.fold(key, client)
    return lambda number: Batch(stream, number)

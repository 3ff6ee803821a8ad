"""Which of its samples a client takes for its next batch.

Each stream is a function of the step, counted over all rounds the client took part in,
so that the cursor outlives a round and there is no state to keep. All take the same
arguments and give positions in the client's own data.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from focusfl.core import random as keys
from focusfl.core.validation import check_count

Positions = Int[np.ndarray, "_"]


def per_epoch(length: int, batch: int) -> int:
    """Count the batches of one epoch; the last may be short."""
    check_count("length", length)
    check_count("batch", batch)
    return -(-length // batch)


def epochs(step: int, length: int, batch: int, seed: int, client: int) -> Positions:
    """Walk the data without replacement, in a new order each epoch.

    Args:
        step: gradients that the client has computed before.
        length: samples of the client.
        batch: samples of a batch.
        seed: of the run.
        client: its number.
    """
    check_count("client", client, least=0)
    epoch, turn = divmod(_check_step(step), per_epoch(length, batch))
    order = keys.rng(seed, "batch", client, epoch).permutation(length)
    return order[turn * batch : (turn + 1) * batch]


def fixed_order(step: int, length: int, batch: int, seed: int = 0, client: int = 0) -> Positions:
    """Walk the data as it lies, epoch after epoch.

    Args:
        step: gradients that the client has computed before.
        length: samples of the client.
        batch: samples of a batch.
        seed: of the run.
        client: its number.
    """
    del seed, client  # deterministic
    turn = _check_step(step) % per_epoch(length, batch)
    return np.arange(turn * batch, min((turn + 1) * batch, length))


def with_replacement(step: int, length: int, batch: int, seed: int, client: int) -> Positions:
    """Draw a full batch anew each step; what theory assumes.

    Args:
        step: gradients that the client has computed before.
        length: samples of the client.
        batch: samples of a batch.
        seed: of the run.
        client: its number.
    """
    per_epoch(length, batch)  # checks
    check_count("client", client, least=0)
    return keys.rng(seed, "batch", client, _check_step(step)).integers(length, size=batch)


STREAMS: dict[str, Callable[..., Positions]] = {
    "epochs": epochs,
    "fixed_order": fixed_order,
    "with_replacement": with_replacement,
}


def _check_step(step):
    check_count("step", step, least=0)
    return int(step)

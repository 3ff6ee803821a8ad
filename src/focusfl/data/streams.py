"""Streams: which samples a client takes for its next batch.

A stream is a function of the step, counted over all rounds that the client took part in, so
that no state has to be stored between rounds. All streams take the same arguments and return
positions in the client's data.

They draw by NumPy, for sites and loops without jax. `problems.loss.MeanLoss.pick` draws the
batches of compiled runs in the same orders by name, but from jax's random numbers.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from focusfl.core import random as keys
from focusfl.core.validation import check_count

Positions = Int[np.ndarray, "_"]


def per_epoch(length: int, batch: int) -> int:
    """Count the batches of an epoch; the last one may be short."""
    check_count("length", length)
    check_count("batch", batch)
    return -(-length // batch)


def epochs(step: int, length: int, batch: int, seed: int, client: int) -> Positions:
    """Take samples without replacement, in a new order in every epoch.

    Args:
        step: number of gradients that the client has computed before.
        length: number of samples of the client.
        batch: number of samples of a batch.
        seed: of the run.
        client: number of the client.
    """
    check_count("client", client, least=0)
    epoch, turn = divmod(_check_step(step), per_epoch(length, batch))
    order = keys.rng(seed, "batch", client, epoch).permutation(length)
    return order[turn * batch : (turn + 1) * batch]


def fixed_order(step: int, length: int, batch: int, seed: int = 0, client: int = 0) -> Positions:
    """Take samples in their order, epoch after epoch.

    Args:
        step: number of gradients that the client has computed before.
        length: number of samples of the client.
        batch: number of samples of a batch.
        seed: of the run.
        client: number of the client.
    """
    del seed, client  # deterministic
    turn = _check_step(step) % per_epoch(length, batch)
    return np.arange(turn * batch, min((turn + 1) * batch, length))


def with_replacement(step: int, length: int, batch: int, seed: int, client: int) -> Positions:
    """Draw a full batch with replacement in every step, as theory assumes.

    Args:
        step: number of gradients that the client has computed before.
        length: number of samples of the client.
        batch: number of samples of a batch.
        seed: of the run.
        client: number of the client.
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

"""How much each client counts: F(x) = sum of w_i f_i(x) / sum of w_i."""

from typing import Any

import numpy as np
from jaxtyping import Float

from focusfl.core.validation import check_one_of, numeric

Weights = str | list | Float[np.ndarray, " clients"] | None  # as a user gives them
WORDS = ("samples", "equal")


def weights_of(
    given: Weights, num_clients: int, samples: Any = None
) -> Float[np.ndarray, " clients"] | None:
    """Check weights; give one for each client, or None if all are 1.

    "samples" counts a client by its samples, over their mean: the weights of N clients
    add up to N, and step sizes keep their meaning. Numbers are taken as they are: a
    client of weight 2 is two clients that always come together.

    Args:
        given: "samples", "equal", or a positive number for each client.
        num_clients: N.
        samples: how many each client has; None if the problem has none.

    Raises:
        ValueError: If a word is not known, or a weight is not positive and finite.
    """
    if given is None:
        return None
    if isinstance(given, str):
        check_one_of("weights", given, WORDS)
        if given == "equal":
            return None
        if samples is None:
            raise ValueError(
                'weights must be "equal" or a number for each client; got "samples" '
                "for a problem whose clients have no samples to count by."
            )
        counts = np.asarray(samples, float)
        weights = counts / counts.mean()
    else:
        weights = check_weights(given, num_clients)
    return None if (weights == 1).all() else weights


def check_weights(given: Any, num_clients: int) -> Float[np.ndarray, " clients"]:
    """Raise unless there is a positive and finite number for each client."""
    weights = numeric("weights", given)
    if weights.shape != (num_clients,) or weights.dtype == bool:
        raise ValueError(
            f"weights must be {num_clients} numbers, one for each client; got "
            f"{weights.dtype} of shape {weights.shape}."
        )
    weights = np.asarray(weights, float)
    wrong = np.flatnonzero(~((weights > 0) & np.isfinite(weights)))
    if wrong.size:
        raise ValueError(
            f"weights must be positive and finite; got {weights[wrong[0]]:g} for "
            f"client {wrong[0]}. Leave out a client that is not to count."
        )
    return weights


def shares_of(weights: Any) -> Float[np.ndarray, " clients"]:
    """What each client's f_i is multiplied by in F."""
    return weights / np.sum(weights)


def mean_of(weights: Any, each: np.ndarray) -> Any:
    """The mean over clients, the first axis, each counted by its weight."""
    if weights is None:
        return each.mean(0)
    return np.tensordot(shares_of(weights), each, 1)

"""Let who takes part depend on the data: clients with rare data are rarely there."""

import numpy as np
from jaxtyping import Float, Shaped

from focusfl.core import random as keys
from focusfl.core.validation import check_positive, is_number, reals, shown
from focusfl.participation.model import PerClient


def rarity(counts: Shaped[np.ndarray, "clients classes"]) -> PerClient:
    """Score clients by how rare their classes are, from counts per client and class.

    The score is the mean surprise of a client's labels, -log of a class's share of all
    samples.
    """
    counts = reals("counts", counts, ("client", "column"))
    if np.any(counts < 0) or not np.all(counts.sum(1) > 0):
        raise ValueError(
            "counts must be a (clients, classes) matrix with samples in every row; got "
            f"{counts.min():g} in places, smallest row sum {counts.sum(1).min():g}."
        )
    share = counts.sum(0) / counts.sum()
    surprise = -np.log(share, where=share > 0, out=np.zeros_like(share))
    return counts @ surprise / counts.sum(1)


def by_rarity(
    scores: Shaped[np.ndarray, " clients"] | list,
    p_min: float | int,
    p_max: float | int,
    strength: float | int = 1,
    seed: int = 0,
) -> Float[np.ndarray, " clients"]:
    """Choose chances or weights that fall, or rise, with one score per client.

    They are always the same numbers, evenly spaced in the logarithm from p_max down to
    p_min; `strength` says who gets which. At 1 the highest score gets p_min, at -1
    p_max, at 0 they are dealt at random, and in between ranks are mixed with noise.

    Args:
        scores: one number per client, as `rarity` gives; only their order counts.
        p_min: the smallest chance or weight, positive.
        p_max: the largest.
        strength: -1 to 1; at 1 the highest score gets p_min.
        seed: of the noise that ranks are mixed with.

    Raises:
        ValueError: If a number is out of its range.
    """
    score = reals("scores", scores, ("client",))
    check_positive("p_min", p_min)
    check_positive("p_max", p_max)
    if p_min > p_max:
        raise ValueError(
            f"p_min and p_max must satisfy 0 < p_min <= p_max; got {p_min} and {p_max}."
        )
    if not is_number(strength) or not -1 <= strength <= 1:
        raise ValueError(f"strength must lie in [-1, 1]; got {shown(strength)}.")
    noise = keys.rng(seed, "rarity").standard_normal(len(score))
    rank = np.unique(score, return_inverse=True)[1].astype(float)  # equal: same rank
    rank = (rank - rank.mean()) / (rank.std() or 1)
    mixed = strength * rank + np.sqrt(1 - strength**2) * noise
    out = np.empty(len(score))
    out[np.lexsort((noise, mixed))] = np.geomspace(p_max, p_min, len(score))
    return out

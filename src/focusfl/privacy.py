"""What gradients with Gaussian noise give away: epsilon, by `dp-accounting`.

A gradient in which a unit, a record or a client, changes a sum by at most s, and which
carries noise of standard deviation `noise` * s in every entry, is one Gaussian
mechanism. A client's gradients compose, one after the other and adaptively; what is
made of them afterwards costs nothing more. No amplification by sampling is claimed.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from focusfl.core.extras import missing
from focusfl.core.validation import (
    check_count,
    check_not_negative,
    check_one_of,
    check_positive,
    is_number,
    shown,
)

ACCOUNTANTS = "pld", "rdp"
GRID = 1e-3  # the step of a PLD's grid, as a share of epsilon: it errs upwards by that
POINTS = 64  # numbers of gradients that an accountant is asked for at once


def epsilon(noise: float, gradients: int, delta: float = 1e-5, accountant: str = "pld") -> float:
    """The epsilon of so many gradients at this delta.

    Args:
        noise: standard deviation of the noise over the most that a unit can change.
        gradients: how many, whoever asked for them; 0 give nothing away.
        delta: the chance that epsilon does not bound.
        accountant: "pld", tight, or "rdp", faster and some 8 % more.

    Raises:
        ValueError: If a number is out of its range, or dp-accounting is missing.
    """
    check_not_negative("noise", noise)
    check_count("gradients", gradients, least=0)
    check_delta(delta)
    check_one_of("accountant", accountant, ACCOUNTANTS)
    if not gradients:
        return 0.0
    if not noise:
        return math.inf
    return _epsilon(float(noise), int(gradients), float(delta), accountant)


def epsilons(
    noise: float,
    gradients: Int[np.ndarray, "*any"],
    delta: float = 1e-5,
    accountant: str = "pld",
) -> Float[np.ndarray, "*any"]:
    """The epsilon of each of many numbers of gradients.

    Of more than 64 different numbers, all but the largest are rounded up to one of 64:
    their epsilon is then a bound that is a little too large, never too small.
    """
    values = np.unique(gradients)
    if len(values) > POINTS:
        asked = values[np.linspace(0, len(values) - 1, POINTS).astype(int)]
    else:
        asked = values
    found = np.array([epsilon(noise, int(k), delta, accountant) for k in asked])
    return found[np.searchsorted(asked, gradients)]


def gradients_within(
    budget: float, noise: float, delta: float = 1e-5, accountant: str = "pld"
) -> int:
    """How many gradients a client may compute before it has spent more than a budget.

    Args:
        budget: the largest epsilon.
        noise: standard deviation of the noise over the most that a unit can change.
        delta: the chance that epsilon does not bound.
        accountant: "pld" or "rdp".

    Raises:
        ValueError: If a number is out of its range, or dp-accounting is missing.
    """
    check_positive("budget", budget)
    check_positive("noise", noise)

    def fits(count: int) -> bool:
        return epsilon(noise, count, delta, accountant) <= budget

    # RDP is a bound and quick: it says where to look.
    low = _last(lambda k: epsilon(noise, k, delta, "rdp") <= budget, 0)
    return low if accountant == "rdp" else _last(fits, low)


def noise_for(
    epsilon: float, gradients: int, delta: float = 1e-5, accountant: str = "pld"
) -> float:
    """The least noise, to a thousandth, with which so many gradients cost epsilon.

    Args:
        epsilon: what they may give away in all.
        gradients: how many a client computes in all.
        delta: the chance that epsilon does not bound.
        accountant: "pld" or "rdp".

    Raises:
        ValueError: If a number is out of its range, or dp-accounting is missing.
    """
    check_positive("epsilon", epsilon)
    check_count("gradients", gradients)
    spent = globals()["epsilon"]
    # k gradients with noise s are one with noise s / sqrt(k).
    high = 1.0
    while spent(high, 1, delta, accountant) > epsilon:
        high *= 2
    low = high / 2
    while spent(low, 1, delta, accountant) <= epsilon:
        low, high = low / 2, low
    while high > 1.0005 * low:
        middle = math.sqrt(low * high)
        if spent(middle, 1, delta, accountant) <= epsilon:
            high = middle
        else:
            low = middle
    return high * math.sqrt(gradients) * (1 + 1e-9)


def check_delta(delta: Any) -> None:
    """Raise unless this is a chance that can be a delta."""
    if not is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1); got {shown(delta)}.")


def _last(fits: Any, known: int) -> int:
    """The last number that fits, from one on that does; all below it do too."""
    step = 1
    while fits(known + step):
        known, step = known + step, 2 * step
    while step > 1:
        step //= 2
        if fits(known + step):
            known += step
    return known


@lru_cache(maxsize=4096)
def _epsilon(noise: float, gradients: int, delta: float, accountant: str) -> float:
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError:
        raise ValueError(missing("epsilon needs", "dp-accounting", "privacy")) from None
    spent: Any = rdp.RdpAccountant()
    event = dp_accounting.GaussianDpEvent(noise)
    spent.compose(event, gradients)
    rough = float(spent.get_epsilon(delta))
    if accountant == "rdp":
        return rough
    spent = pld.PLDAccountant(value_discretization_interval=GRID * rough)
    spent.compose(event, gradients)
    return float(spent.get_epsilon(delta))

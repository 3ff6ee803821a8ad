"""The epsilon of gradients with Gaussian noise, by `dp-accounting` or by a formula.

A gradient that one unit (a record or a client) changes by at most s in norm, plus noise of
standard deviation `noise` * s on every entry, is one Gaussian mechanism. The gradients of a
client compose adaptively; what is computed from them afterwards costs nothing more. No
amplification by sampling is claimed.
"""

import math
from collections.abc import Callable
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
# Step of a PLD's grid as a share of epsilon: epsilon is too large by at most that.
RELATIVE_STEP = 1e-3
ORDERS = 1 + np.geomspace(1e-3, 1e7, 4000)  # of Rényi divergences
MAX_POINTS = 64  # numbers of gradients for which `epsilons` asks the accountant


def epsilon(noise: float, gradients: int, delta: float = 1e-5, accountant: str = "pld") -> float:
    """Compute the epsilon of a number of gradients.

    Args:
        noise: standard deviation of the noise, divided by the sensitivity to a unit.
        gradients: how many were computed; 0 cost nothing.
        delta: the probability with which epsilon may fail to bound the loss of privacy.
        accountant: "pld", tight, by dp-accounting; or "rdp", a formula, some 8 % larger.

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
    """Compute the epsilon of each of many numbers of gradients; arguments as for `epsilon`.

    More than 64 different numbers are rounded up to one of 64: the result is then a bound
    that may be a little too large, but never too small.
    """
    values = np.unique(gradients)
    if len(values) > MAX_POINTS:
        values = values[np.linspace(0, len(values) - 1, MAX_POINTS).astype(int)]
    costs = np.array([epsilon(noise, int(k), delta, accountant) for k in values])
    return costs[np.searchsorted(values, gradients)]


def gradients_within(
    budget: float, noise: float, delta: float = 1e-5, accountant: str = "pld"
) -> int:
    """Count the gradients that a client may compute within a budget.

    Args:
        budget: the largest epsilon.
        noise: standard deviation of the noise, divided by the sensitivity to a unit.
        delta: the probability with which epsilon may fail to bound the loss of privacy.
        accountant: "pld" or "rdp".

    Raises:
        ValueError: If a number is out of its range, or dp-accounting is missing.
    """
    check_positive("budget", budget)
    check_positive("noise", noise)

    def fits(count: int, kind: str) -> bool:
        return epsilon(noise, count, delta, kind) <= budget

    # RDP is fast and never too small: what fits by it fits by PLD.
    low = _largest(lambda count: fits(count, "rdp"), 0)
    return low if accountant == "rdp" else _largest(lambda count: fits(count, accountant), low)


def noise_for(
    epsilon: float, gradients: int, delta: float = 1e-5, accountant: str = "pld"
) -> float:
    """Find the smallest noise, to a thousandth, with which gradients cost at most epsilon.

    Args:
        epsilon: of all the gradients together.
        gradients: how many a client computes in all.
        delta: the probability with which epsilon may fail to bound the loss of privacy.
        accountant: "pld" or "rdp".

    Raises:
        ValueError: If a number is out of its range, or dp-accounting is missing.
    """
    check_positive("epsilon", epsilon)
    check_count("gradients", gradients)
    check_delta(delta)
    check_one_of("accountant", accountant, ACCOUNTANTS)

    def too_little(noise: float) -> bool:
        return _epsilon(noise, 1, float(delta), accountant) > epsilon

    # k gradients with noise s cost what one with noise s / sqrt(k) costs.
    high = 1.0
    while too_little(high):
        high *= 2
    low = high / 2
    while not too_little(low):
        low, high = low / 2, low
    while high > 1.0005 * low:
        middle = math.sqrt(low * high)
        if too_little(middle):
            low = middle
        else:
            high = middle
    return high * math.sqrt(gradients) * (1 + 1e-9)


def check_delta(delta: Any) -> None:
    """Raise ValueError unless delta is a probability in (0, 1)."""
    if not is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1); got {shown(delta)}.")


def _largest(fits: Callable[[int], bool], largest: int) -> int:
    """Find the largest number that fits, given one that does; all below it fit too."""
    step = 1
    while fits(largest + step):
        largest, step = largest + step, 2 * step
    while step > 1:
        step //= 2
        if fits(largest + step):
            largest += step
    return largest


def rdp_epsilon(rho: float, delta: float) -> float:
    """Compute the epsilon of a mechanism whose Rényi divergence of order a is at most rho * a.

    One gradient has rho = 1 / (2 noise**2), with normal noise as with discrete Gaussian noise on
    whole numbers (Canonne, Kamath and Steinke 2020); the rhos of several add up. Every order
    gives a bound; this is the smallest of those tried. (Their Proposition 12; dp-accounting
    tries fewer orders.)
    """
    bounds = rho * ORDERS + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    return max(0.0, float(bounds.min()))


@lru_cache(maxsize=4096)
def _epsilon(noise: float, gradients: int, delta: float, accountant: str) -> float:
    by_rdp = rdp_epsilon(gradients / (2 * noise**2), delta)
    if accountant == "rdp":
        return by_rdp
    try:
        import dp_accounting
        from dp_accounting import pld
    except ImportError:
        raise ValueError(missing('accountant="pld" needs', "dp-accounting", "privacy")) from None
    event = dp_accounting.GaussianDpEvent(noise)
    accounts: Any = pld.PLDAccountant(value_discretization_interval=RELATIVE_STEP * by_rdp)
    accounts.compose(event, gradients)
    return float(accounts.get_epsilon(delta))

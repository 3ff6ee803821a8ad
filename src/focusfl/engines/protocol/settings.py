"""What a job is run with: what may be asked for, and what is still the same later."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from focusfl.checks import check_count, check_one_of, check_positive, shown
from focusfl.engines.protocol.files import check_name, check_names
from focusfl.engines.protocol.magnitude import norm
from focusfl.engines.step_sizes import step_at, tabled
from focusfl.fingerprint import fingerprint
from focusfl.tree import Tree

# Rounds in which functions are compared: all up to one, then twice as far every time.
DENSE = 4096
NAMED = 10  # sites that a message names
FURTHER = [DENSE << k for k in range(16)]


def check_settings(
    job: str, sites: Sequence[str], lr: Any, local_steps: int, on_empty: str,
    max_norm: float | int | None, weights: Mapping[str, float | int] | None = None,
) -> None:  # fmt: skip
    """Raise ValueError unless a job can be run with these."""
    check_name("job", job)
    check_names("site", sites)
    if not sites or len({*sites}) < len(sites):
        raise ValueError(f"sites must be different names; got {shown(list(sites))}.")
    if on_empty not in ("skip", "step"):
        raise ValueError(f"on_empty must be 'skip' or 'step'; got {on_empty!r}.")
    check_count("local_steps", local_steps)
    if not callable(lr):
        check_positive("lr", lr)
    if max_norm is not None and max_norm != math.inf:  # any may pass
        check_positive("max_norm", max_norm)
    if weights is not None:
        _check_weights(weights, sites)


def _check_weights(weights: Any, sites: Sequence[str]) -> None:
    if not isinstance(weights, Mapping) or {*weights} != {*sites}:
        got = list(weights) if isinstance(weights, Mapping) else weights
        names = ", ".join(sites[:NAMED]) + (", ..." if len(sites) > NAMED else "")
        raise ValueError(
            f"weights must be a number for every site, {names}, by name; "
            f"got {shown(got)}."
        )
    for site, weight in weights.items():
        check_positive(f"the weight of {site}", weight)


def steps_of(lr: Any) -> Callable[[int], float]:
    """The step of every round, checked when it is first asked for."""
    return cache(partial(step_at, lr))


def settings_of(
    params: Tree, lr: Any, local_steps: int, on_empty: str
) -> dict[str, Any]:
    """What the numbers of a job depend on, beside its identity: in words and numbers.

    A function of the round is known by the steps that it gives.
    """
    return {
        "lr": _steps(lr) if callable(lr) else float(lr),
        "local_steps": int(local_steps),
        "on_empty": on_empty,
        "x0": f"a model of norm {norm(params):.6g} ({fingerprint(params)})",
    }


def _steps(lr: Callable) -> str:
    try:
        steps, later = tabled(lr, DENSE).steps.tolist(), FURTHER
    except ValueError:  # made for fewer rounds
        steps, later = [step_at(lr, 0)], [*range(1, DENSE)]
    for index in later:
        try:
            steps.append(step_at(lr, index))
        except ValueError:
            break
    least, most = min(steps), max(steps)
    return f"a function of {least:.6g} to {most:.6g} ({fingerprint(steps)})"


def check_unchanged(
    before: Mapping[str, Any], now: Mapping[str, Any], changed: str
) -> list[str]:
    """Raise ValueError if a job would go on with other settings, unless that is asked
    for; then give what has changed, in words."""
    check_one_of("changed", changed, ("refuse", "accept"))
    words = [
        f"{name} was {before.get(name)!r} and is now {value!r}"
        for name, value in now.items()
        if before.get(name) != value
    ]
    if words and changed == "refuse":
        raise ValueError(f"{'; '.join(words)}. changed='accept' goes on all the same.")
    return words

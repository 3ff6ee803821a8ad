"""What a job is run with: what may be asked for, and what must stay the same."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from focusfl.core import Algorithm, CannotForget
from focusfl.core.files import parse_json
from focusfl.core.fingerprint import fingerprint
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_one_of, check_positive, check_weight, shown
from focusfl.flower.protocol.limits import norm
from focusfl.flower.protocol.messages import digest
from focusfl.simulation.step_sizes import step_at, tabled

MAX_NAME = 100  # letters
NAME = re.compile(r"[^\W][\w.-]*", re.A)
# Rounds in which step sizes are compared: all up to one, then twice as far each time.
DENSE = 4096
FURTHER = [DENSE << k for k in range(16)]


def check_name(what: str, name: Any) -> None:
    """Raise ValueError unless a name is fit for a file and a log."""
    fit = isinstance(name, str) and NAME.fullmatch(name) and len(name) <= MAX_NAME
    if not fit:
        raise ValueError(
            f"{what} must be a name of letters, digits, '_', '-' and '.'; got {name!r}."
        )


def check_settings(
    job: str, sites: Sequence[str], lr: Any, local_steps: int, on_empty: str,
    max_norm: float | int | None, weights: Mapping[str, float | int] | None = None,
) -> None:  # fmt: skip
    """Raise ValueError unless a job can be run with these settings of `ProtocolServer`."""
    check_name("job", job)
    for site in sites:
        check_name("site", site)
    if not sites or len({*sites}) < len(sites):
        raise ValueError(f"sites must be different names; got {shown(list(sites))}.")
    check_one_of("on_empty", on_empty, ("skip", "step"))
    check_count("local_steps", local_steps)
    if not callable(lr):
        check_positive("lr", lr)
    if max_norm is not None and max_norm != math.inf:  # any may pass
        check_positive("max_norm", max_norm)
    if weights is None:
        return
    if not isinstance(weights, Mapping) or {*weights} != {*sites}:
        got = list(weights) if isinstance(weights, Mapping) else weights
        raise ValueError(
            f"weights must be a number for every site, {shown(list(sites))}, by name; "
            f"got {shown(got)}."
        )
    for site, weight in weights.items():
        check_weight(f"the weight of {site}", weight)


def check_max_memory(max_memory: Any, algorithm: Algorithm, params: Tree) -> None:
    """Raise ValueError unless what the server holds of a site can be bounded so.

    A site that sends its state may send another one than its pushes add up to.
    """
    if max_memory is None:
        return
    check_positive("max_memory", max_memory)
    try:
        holds = bool(algorithm.tracked(*algorithm.init(params)))
    except CannotForget:
        holds = False
    if algorithm.sends_state or not holds:
        raise ValueError(
            "max_memory needs an algorithm whose server knows from a site's pushes what it "
            f"holds of the site, as FOCUS, SCAFFOLD and MIFA do; got {algorithm!r}."
        )


def identity_of(
    algorithm: Algorithm, job: str, sites: Sequence[str],
    weights: Mapping[str, float | int] | None,
) -> str:  # fmt: skip
    """Write as JSON what a database must have in common with the job it is opened for."""
    weight_by_site = [[site, float(weights[site]) if weights else 1.0] for site in sites]
    return json.dumps({
        "algorithm": repr(algorithm), "job": job,
        "names and weights": digest(json.dumps(weight_by_site).encode()), "sites": len(sites),
    })  # fmt: skip


def settings_of(params: Tree, lr: Any, local_steps: int, on_empty: str) -> dict[str, Any]:
    """Collect what the numbers of a job depend on beside its identity.

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


def check_unchanged(before: str, now: Mapping[str, Any], changed: str) -> list[str]:
    """Say which settings of a job have changed since it was begun.

    Args:
        before: the settings it was begun with, as JSON.
        now: the settings it is opened with.
        changed: "accept", or "refuse" to raise if there are any.

    Raises:
        ValueError: If some have changed, unless `changed` is "accept".
    """
    check_one_of("changed", changed, ("refuse", "accept"))
    previous = parse_json(before)
    if not isinstance(previous, dict):
        raise ValueError("its settings are damaged.")
    words = [
        f"{name} was {previous.get(name)!r} and is now {value!r}"
        for name, value in now.items()
        if previous.get(name) != value
    ]
    if words and changed == "refuse":
        raise ValueError(f"{'; '.join(words)}. changed='accept' goes on all the same.")
    return words

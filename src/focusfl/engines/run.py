"""What every engine takes and gives: one run of one algorithm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from focusfl import keys, tree
from focusfl.checks import check_count
from focusfl.core import Algorithm, Batch, GradFn
from focusfl.participation import Participation
from focusfl.problems import Objective, Problem
from focusfl.tree import Tree

OnEmpty = Literal["skip", "step"]
Record = Literal["metrics", "model"]
ClientState = Literal["auto", "device", "host", "disk"]  # where clients' memory is
StepSize = float | int | Literal["auto"]
# Called with the rounds done and the metrics by then; may say that it is enough.
Progress = Callable[[int, Mapping[str, Any]], bool | None]

BLOWN_UP = 1e8  # a relative distance past this, times the first one, is divergence


@dataclass(frozen=True, eq=False)
class Result:
    """One run. Metrics and trajectory begin at x0: entry r + 1 is after round r."""

    x: Tree  # the server's model after the last round
    metrics: dict[str, np.ndarray]  # distance, loss, grad_norm, ...; see `costs`
    trajectory: Tree | None  # (rounds + 1, ...) with record="model"
    diverged_at: int | None  # the round that broke it; everything else ends before it
    lr: float
    why_lr: str | None  # how it was chosen, where it was not given
    server: Any
    clients: Any  # every client's memory, stacked; None if the run diverged


class Diverged(ArithmeticError):
    """Raised instead of a result when a run diverges and `throw` is set."""


def check(
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    rounds: int,
    lrs: np.ndarray,
    local_steps: int,
    x0: Tree | None,
    on_empty: str,
    record: str,
    every: int,
) -> Tree:
    """Raise ValueError on what cannot run; give the model to start from."""
    for what, got, want in [
        ("algorithm", algorithm, Algorithm),
        ("problem", problem, Problem),
        ("participation", participation, Participation),
    ]:
        if not isinstance(got, want):
            hint = "; call it" if isinstance(got, type) else ""
            raise ValueError(f"{what} must be a {want.__name__}; got {got!r}{hint}.")
    check_count("rounds", rounds)
    check_count("local_steps", local_steps)
    check_count("every", every)
    if not np.all((lrs > 0) & np.isfinite(lrs)):
        raise ValueError(f"lr must be positive and finite; got {lrs.tolist()}.")
    for name, word, words in [
        ("on_empty", on_empty, ("skip", "step")),
        ("record", record, ("metrics", "model")),
    ]:
        if word not in words:
            raise ValueError(f"{name} must be one of {words}; got {word!r}.")
    participation.check(problem.num_clients)
    return _start(problem, x0)


def choose_lr(
    lr: StepSize,
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    local_steps: int,
) -> tuple[float, str | None]:
    """Give the step size and, where "auto" has chosen it, how."""
    if lr == "auto":
        from focusfl.theory.auto import auto_lr

        return auto_lr(algorithm, problem, participation, local_steps)
    if np.ndim(lr) or isinstance(lr, str):
        raise ValueError(
            f'lr must be one number or "auto"; got {lr!r}. Use sweep() for several.'
        )
    return float(lr), None


def _start(problem: Problem, x0: Tree | None) -> Tree:
    if x0 is None:
        return problem.x0

    def leaf(like, given):
        given = np.asarray(given, problem.dtype)
        if given.shape != np.shape(like):
            raise ValueError(f"x0 must have shape {np.shape(like)}; got {given.shape}.")
        if not np.all(np.isfinite(given)):
            raise ValueError("x0 must be finite; it holds NaN or infinity.")
        return given

    try:
        return tree.map(leaf, problem.x0, x0)
    except (KeyError, TypeError, IndexError):
        raise ValueError(
            "x0 must be a model of this problem: nested dicts with the same names."
        ) from None


def batch_stream(objective: Objective, seed: int) -> Any:
    """The key that all batches of a run come from; none if nothing is drawn."""
    return keys.stream(seed, "batch") if objective.stochastic else None


def grad_fn(objective: Objective, data: Tree) -> GradFn:
    """One client's gradient, as algorithms call it."""
    return lambda x, batch: objective.grad(x, data, batch)


def next_batch(objective: Objective, key: Any, client: Any, number: Any) -> Any:
    """What a gradient is drawn from; nothing if the objective draws nothing."""
    return Batch(keys.fold(key, client), number) if objective.stochastic else None


def sane(metrics: Mapping[str, Any], limit: Any) -> Any:
    """Whether a model with these metrics is still worth going on from."""
    ok = True
    for value in metrics.values():
        ok = ok & (value - value == 0)  # finite, in any array library
    if "distance" in metrics:
        ok = ok & (metrics["distance"] <= limit)
    return ok


def limit_of(first: Mapping[str, Any]) -> float:
    """The distance past which a run that began with these metrics has diverged."""
    return BLOWN_UP * max(1.0, float(first.get("distance", 0.0)))


def costs(
    algorithm: Algorithm, num_clients: int, counts: np.ndarray, local_steps: int
) -> dict[str, np.ndarray]:
    """Vectors of the model's size sent and gradients computed per round.

    The warm start is entry 0. A local step computes one gradient.
    """
    first = num_clients if algorithm.starts_warm else 0
    active = np.concatenate([[first], counts])
    gradients = np.concatenate([[first], local_steps * counts])
    down, up = algorithm.cost
    return {"down": down * active, "up": up * active, "gradients": gradients}


def finish(result: Result, throw: bool) -> Result:
    """Give the result, or raise if it diverged and the user wants to hear of it."""
    if throw and result.diverged_at is not None:
        raise Diverged(f"the run diverged in round {result.diverged_at}; lower lr.")
    return result

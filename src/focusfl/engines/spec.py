"""What every engine takes and gives: one run of one algorithm."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from focusfl import keys, tree
from focusfl.checks import check_count, check_is, check_seed, shown
from focusfl.core import Algorithm, Batch, GradFn
from focusfl.engines.stop import Progress as Progress
from focusfl.engines.stop import Stop
from focusfl.participation import Participation
from focusfl.problems import Objective, Problem
from focusfl.tree import Tree

OnEmpty = Literal["skip", "step"]
Record = Literal["metrics", "model"]
ClientState = Literal["auto", "device", "host", "disk"]  # where clients' memory is
StepSize = float | int | Literal["auto"]

BLOWN_UP = 1e8  # a relative distance past this, times the first one, is divergence
STEPS = 2**31  # gradients of one client are counted in 32 bits
COSTS = ("down", "up", "gradients")  # what a round takes, not how good its model is


@dataclass(frozen=True, eq=False)
class Result:
    """One run. Metrics and trajectory begin at x0: entry r + 1 is after round r.

    Metrics are NaN in rounds that were not evaluated; x0 and `x`, the first and the
    last, always are. Costs, which are metrics too, are known in every round.
    """

    x: Tree  # the server's model after the last round
    metrics: dict[str, np.ndarray]  # distance, loss, grad_norm, ...; see `costs`
    trajectory: Tree | None  # (rounds + 1, ...) with record="model"
    diverged_at: int | None  # the round that broke it; everything else ends before it
    lr: float
    why_lr: str | None  # how it was chosen, where it was not given
    server: Any
    clients: Any  # every client's memory, stacked; None if the run diverged

    @property
    def evaluated(self) -> np.ndarray:
        """The rounds done, 0 for x0, at which metrics were evaluated."""
        curves = [v for name, v in self.metrics.items() if name not in COSTS]
        length = len(next(iter(self.metrics.values())))
        known = [~np.isnan(np.asarray(curve, float)) for curve in curves]
        return np.flatnonzero(np.any(known, 0)) if known else np.arange(length)


class Diverged(ArithmeticError):
    """Raised instead of a result when a run diverges and `throw` is set."""


class DivergenceWarning(UserWarning):
    """Warns that a run diverged and its result ends early, where `throw` is not set."""


def check(
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    rounds: int,
    lrs: np.ndarray,
    local_steps: int,
    x0: Tree | None,
    seeds: Sequence[int],
    on_empty: str,
    record: str,
    every: int,
    progress: Progress | None,
    stop: Stop | None,
) -> Tree:
    """Raise ValueError on what cannot run; give the model to start from."""
    check_is("algorithm", algorithm, Algorithm)
    check_is("problem", problem, Problem)
    check_is("participation", participation, Participation)
    check_count("rounds", rounds)
    check_count("local_steps", local_steps)
    check_count("every", every)
    if rounds * local_steps >= STEPS:
        raise ValueError(
            f"rounds times local_steps must be below 2^31; got {rounds} and "
            f"{local_steps}."
        )
    if not np.all((lrs > 0) & np.isfinite(lrs)):
        raise ValueError(f"lr must be positive and finite; got {lrs.tolist()}.")
    for seed in seeds:
        check_seed("seed", seed)
    for name, word, words in [
        ("on_empty", on_empty, ("skip", "step")),
        ("record", record, ("metrics", "model")),
    ]:
        if not isinstance(word, str) or word not in words:
            raise ValueError(f"{name} must be one of {words}; got {shown(word)}.")
    if progress is not None and not _takes(progress, 0, {}):
        raise ValueError(
            "progress must be a function of the rounds done and the metrics; "
            f"got {shown(progress)}."
        )
    if stop is not None:
        check_is("stop", stop, Stop)
    participation.check(problem.num_clients)
    return _start(problem, x0)


def check_throw(throw: Any) -> None:
    """Raise unless this says what to do about divergence."""
    if throw not in (True, False, None):
        raise ValueError(f"throw must be True, False or None; got {throw!r}.")


def choose_lr(
    lr: StepSize,
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    local_steps: int,
) -> tuple[float, str | None]:
    """Give the step size and, where "auto" has chosen it, how."""
    if isinstance(lr, str) and lr == "auto":
        from focusfl.theory.auto import auto_lr

        return auto_lr(algorithm, problem, participation, local_steps)
    several = " Use sweep() for several." if _several(lr) else ""
    if callable(lr):
        several = " It is the same in every round."
    if several or not _is_number(lr):
        raise ValueError(f'lr must be one number or "auto"; got {shown(lr)}.{several}')
    return float(lr), None


def rates_of(lrs: Sequence[float]) -> np.ndarray:
    """The step sizes of runs side by side, as an array."""
    rates = list(lrs) if _several(lrs) else [lrs]
    if not all(map(_is_number, rates)):
        raise ValueError(f"lrs must be a list of numbers; got {shown(lrs)}.")
    if not rates:
        raise ValueError("lrs must hold at least one number; got [].")
    return np.asarray(rates, float)


def seeds_of(seed: int | Sequence[int]) -> list[int]:
    """The seeds of runs side by side."""
    if not _several(seed):
        return [seed]  # type: ignore[list-item]
    if not len(seed):  # type: ignore[arg-type]
        raise ValueError("seed must be one or a list of at least one; got [].")
    return list(seed)  # type: ignore[arg-type]


def _several(value: Any) -> bool:
    return isinstance(value, list | tuple | range) or getattr(value, "ndim", 0) > 0


def _takes(function: Any, *arguments: Any) -> bool:
    """Whether something can be called with these, as far as one can tell."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # it does not say
        pass
    return True


def _is_number(value: Any) -> bool:
    if isinstance(value, str | bytes | bool | np.bool_) or _several(value):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _start(problem: Problem, x0: Tree | None) -> Tree:
    if x0 is None:
        return problem.x0

    def leaf(like, asked):
        try:
            given = np.asarray(asked)
            if given.dtype.kind not in "biufV":  # V: bfloat16
                raise ValueError
            given = given.astype(problem.dtype)
        except ValueError:
            raise ValueError(f"x0 must be real numbers; got {shown(asked)}.") from None
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


def number(name: str, value: Any) -> float:
    """A metric as a number; raise if it is more than one."""
    if np.ndim(value):
        raise ValueError(
            f"a metric must be one number; {name} has shape {tuple(np.shape(value))}."
        )
    return float(value)


def limit_of(first: Mapping[str, Any]) -> float:
    """The distance past which a run that began with these metrics has diverged.

    Raise if it cannot begin: metrics that are not finite at x0 say nothing later.
    """
    for name, value in first.items():
        if not np.isfinite(found := number(name, value)):
            raise ValueError(
                f"{name} is {found} at x0; look for NaN, infinity or very large "
                "numbers in the data, or start from another x0."
            )
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


def finish(results: Sequence[Result], throw: bool | None) -> None:
    """Raise or warn if runs diverged; call it from what a user calls.

    With None nothing is said: that is for who says it otherwise.
    """
    broken = [result for result in results if result.diverged_at is not None]
    if not broken or throw is None:
        return
    words = _advice(broken, len(results))
    if throw:
        raise Diverged(words)
    warnings.warn(words, DivergenceWarning, stacklevel=3)


def _advice(broken: Sequence[Result], runs: int) -> str:
    where = [f"in round {run.diverged_at} at lr = {run.lr:.3g}" for run in broken[:4]]
    more = f" and {len(broken) - 4} more" if len(broken) > 4 else ""
    what = "the run" if runs == 1 else f"{len(broken)} of {runs} runs"
    words = f"{what} diverged {', '.join(where)}{more}"
    smaller = min(run.lr for run in broken) / 4
    words += f". A result ends before that round. Try lr = {smaller:.2g} or below"
    if any(run.diverged_at == 0 for run in broken):
        words += "; if round 0 breaks at any lr, look for NaN or infinity in the data"
    return words + "."

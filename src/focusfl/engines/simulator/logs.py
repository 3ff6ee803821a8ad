"""What is kept of every round, fetched chunk by chunk and cut into results."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from focusfl.engines.result import Result, costs
from focusfl.engines.simulator.compiled import Log
from focusfl.engines.spec import RunSpec
from focusfl.tree import Tree


def fetch(log: Log, rows: int) -> Log:
    """Wait for a chunk and drop its padding."""
    return jax.tree.map(lambda a: np.asarray(a)[:rows], log)


def whole_of(logs: list[Log]) -> Log:
    """Put the chunks together."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *logs)


def one_of(which: tuple[int, ...], runs: Tree) -> Tree:
    """Cut one run out of the runs side by side; one alone is not copied."""
    return jax.tree.map(lambda a: a[..., *which], runs) if which else runs


def last_of(log: Log) -> dict[str, Any]:
    """The last metrics of every run."""
    return {name: a[-1] for name, a in log.metrics.items()}


def told_of(logs: list[Log]) -> int:
    """The rounds that some run has done."""
    rows = [log.alive.reshape(len(log.alive), -1).any(1).sum() for log in logs]
    return int(sum(rows)) - 1


def only_evaluated(
    metrics: dict[str, Any], every: int, rounds: int, end: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Put NaN where the metrics of a run are older than their round.

    It may have ended in any round: `end` evaluates what it ended with.
    """
    length = len(next(iter(metrics.values()), ()))
    done = np.arange(length)
    fresh = (done % every == 0) | (done == rounds)
    if fresh.all():
        return metrics
    metrics = {name: np.where(fresh, a, np.nan) for name, a in metrics.items()}
    if not fresh[-1]:
        for name, value in end().items():
            metrics[name][-1] = value
    return metrics


class Ended(NamedTuple):
    """One run after its last round."""

    server: Any
    clients: Any
    met: bool  # whether it reached a target
    evaluate: Callable[[], dict[str, Any]]  # the model it ended with


def result_of(
    spec: RunSpec, lr: float, log: Log, active: np.ndarray, ended: Ended
) -> Result:
    """Make the result of one run; cut it at the round that broke it, or was enough."""
    whole, length = ended.met or bool(log.alive.all()), int(log.alive.sum())
    metrics, model = jax.tree.map(lambda a: a[:length], (log.metrics, log.model))
    server = jax.tree.map(np.asarray, ended.server)
    spent = costs(
        spec.algorithm, spec.num_clients, active[: length - 1], spec.local_steps
    )
    return Result(
        x=server.x,
        metrics=only_evaluated(metrics, spec.every, spec.rounds, ended.evaluate)
        | spent,
        trajectory=model,
        diverged_at=None if whole else length - 1,
        lr=float(lr),
        why_lr=None,
        server=server,
        clients=ended.clients if whole else None,
    )

"""The loop over chunks until there are enough of them, and the results of its logs."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from focusfl.core.result import Result, costs
from focusfl.core.tree import Tree
from focusfl.simulation.checkpoint import CheckpointFile
from focusfl.simulation.clients import ClientStore
from focusfl.simulation.cohort import StaticConfig
from focusfl.simulation.compiled import Log, State
from focusfl.simulation.layout import PADDING, Plan
from focusfl.simulation.spec import RunSpec
from focusfl.simulation.step_sizes import in_words, used
from focusfl.simulation.stop import Progress


def run_chunks(
    run: Callable[[StaticConfig, State, Plan], tuple[State, Log]],
    coming: Iterator[tuple[StaticConfig, Plan]],
    state: State,
    first: Log,
    kept: CheckpointFile,
    clients: ClientStore,
    progress: Progress | None,
) -> tuple[State, Log]:
    """Run the chunks that are coming until there are enough; give the end and the log.

    One chunk may run on while the next is laid out.
    """
    logs, running = [first], []
    enough = state.met is not None and bool(state.met.all())
    if progress and len(first.alive) > 1:
        enough |= bool(progress(told_of(logs), last_of(first)))
    now = next(coming, None)
    while now and not enough and logs[-1].alive[-1].any():
        static, plan = now
        state, plan = clients.load(state, plan)
        state, log = run(static, state, plan)
        running.append((log, int((plan.round != PADDING).sum())))
        kept.write()  # what was kept before this chunk, while it is running
        now = next(coming, None)
        if now:
            clients.prefetch(now[1])
        due = now is not None and kept.due()
        while len(running) > (now is not None and not due):
            logs.append(fetch(*running.pop(0)))
            if progress:  # a stop that was asked for stays asked for
                enough |= bool(progress(told_of(logs), last_of(logs[-1])))
        if due:
            clients.keep(state, whole_of(logs))
    logs += [fetch(*more) for more in running]  # where it was enough
    whole = whole_of(logs)
    if len(logs) > 1:
        clients.keep(state, whole)
        kept.write()
    return state, whole


def fetch(log: Log, rows: int) -> Log:
    """Wait for a chunk and drop its padding."""
    return jax.tree.map(lambda a: np.asarray(a)[:rows], log)


def whole_of(logs: list[Log]) -> Log:
    """Put the chunks together."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *logs)


def one_of(which: tuple[Any, ...], runs: Tree) -> Tree:
    """Cut one run out of the runs side by side."""
    return jax.tree.map(lambda a: a[..., *which], runs)


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
    clients_metrics: dict[str, Any]  # what that is to each client, if it is asked for


def result_of(
    spec: RunSpec, which: tuple[int, int], log: Log, active: np.ndarray, ended: Ended
) -> Result:
    """Make the result of one run, by its step size and seed; cut it at the round that
    broke it, or was enough."""
    lr, seed = spec.lrs[which[0]], spec.seeds[which[1]]
    whole, length = ended.met or bool(log.alive.all()), int(log.alive.sum())
    metrics, model = jax.tree.map(lambda a: a[:length], (log.metrics, log.model))
    server = jax.tree.map(np.asarray, ended.server)
    spent = costs(
        spec.algorithm,
        spec.num_clients,
        active[: length - 1],
        spec.local_steps,
        server.x,
    )
    return Result(
        x=server.x,
        metrics=only_evaluated(metrics, spec.eval_every, spec.rounds, ended.evaluate)
        | spent
        | spec.time(length - 1, seed),
        trajectory=model,
        diverged_at=None if whole else length - 1,
        lr=used(lr, length - 1, None if whole else length - 1),
        why_lr=None,
        server=server,
        clients=ended.clients if whole else None,
        schedule=in_words(lr),
        weights=spec.problem.weights,
        clients_metrics=jax.tree.map(np.asarray, ended.clients_metrics),
    )

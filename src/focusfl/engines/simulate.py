"""The fast engine: jax, active clients as a batch axis, a scan over rounds.

Rounds run in chunks of one compiled program (program.py), laid out here on the host
(plan.py) while the chunk before is running.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from focusfl.core import Algorithm
from focusfl.engines import memory
from focusfl.engines import program as compiled
from focusfl.engines.checkpoint import CODE, Facts, digest, keeping, words
from focusfl.engines.plan import Plan, chunk_rows, pace, plan, slot_sizes
from focusfl.engines.program import Log, Program, State
from focusfl.engines.run import (
    OnEmpty,
    Progress,
    Record,
    Result,
    StepSize,
    batch_stream,
    check,
    choose_lr,
    costs,
    finish,
    limit_of,
)
from focusfl.participation import Participation, schedule
from focusfl.problems import Problem
from focusfl.tree import Tree


def simulate(
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    *,
    rounds: int,
    lr: StepSize,
    local_steps: int = 1,
    x0: Tree | None = None,
    seed: int = 0,
    on_empty: OnEmpty = "skip",
    record: Record = "metrics",
    every: int = 1,
    throw: bool = False,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float | int = 60,
) -> Result:
    """Run one algorithm on one problem under one law of participation.

    A run that diverges is cut before the round that broke it, which `diverged_at`
    names; with `throw` it raises instead. Metrics are found `every` so many rounds and
    stand until the next time. With lr="auto" FOCUS gets a step size chosen
    for this problem and participation; `why_lr` says how.

    `checkpoint` names a folder for this run alone. Its whole state is written there,
    between chunks of up to 256 rounds, once `checkpoint_every` seconds have passed, and
    at the end. A run that was killed and is called again goes on from there, and gives
    the bits it would have given; one that had ended gives its result at once. It must
    be the same run, to the number of rounds and the versions: any other is refused.
    """
    lr, why = choose_lr(lr, algorithm, problem, participation, local_steps)
    (result,) = sweep(
        algorithm, problem, participation, lrs=[lr], rounds=rounds,
        local_steps=local_steps, x0=x0, seed=seed, on_empty=on_empty, record=record,
        every=every, progress=progress, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )  # fmt: skip
    return finish(replace(result, why_lr=why), throw)


def sweep(
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    *,
    lrs: Sequence[float],
    rounds: int,
    local_steps: int = 1,
    x0: Tree | None = None,
    seed: int | Sequence[int] = 0,
    on_empty: OnEmpty = "skip",
    record: Record = "metrics",
    every: int = 1,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float | int = 60,
) -> list[Result]:
    """Run one algorithm at several learning rates side by side, compiled once.

    With several seeds too, the results come seed by seed. `progress` gets the metrics
    of all of them, as arrays.
    """
    rates = np.atleast_1d(np.asarray(lrs, float))
    seeds = [seed] if isinstance(seed, int | np.integer) else list(seed)
    x0 = check(
        algorithm, problem, participation, rounds, rates, local_steps, x0, on_empty,
        record, every,
    )  # fmt: skip
    drawn = [
        list(schedule(participation, problem.num_clients, rounds, own)) for own in seeds
    ]
    active = np.array([[len(ids) for ids in own] for own in drawn])
    own_pace = pace(compiled.size(x0), jax.default_backend() == "cpu")
    slots = slot_sizes(active.max(0), problem.num_clients, own_pace)
    objective, data = problem.fast(local_steps)
    skips = on_empty == "skip" and bool(
        (active.min(0) < np.minimum(active.max(0), 1)).any()
    )
    program = Program(algorithm, objective, slots, local_steps, record, every, skips)
    x64 = jax.enable_x64(problem.dtype == "float64")
    kept_in = keeping(checkpoint, checkpoint_every)
    with x64, memory.explained(slots[-1]), kept_in as kept:
        x0 = jax.tree.map(partial(jnp.asarray, dtype=problem.dtype), x0)
        keys = [batch_stream(objective, own) for own in seeds]
        key = keys[0]
        anywhere = program._replace(slots=(), skips=False)  # first and last need none
        held, runs = problem.held, len(rates) * len(seeds)
        memory.check(partial(compiled.begin, anywhere), x0, data, held, key, runs)
        data, held = jax.device_put((data, held))
        state, first = compiled.begin(anywhere, x0, data, held, key)
        limit = limit_of({name: a[0] for name, a in first.metrics.items()})
        run, own = compiled.chunk, rates[0]
        if runs > 1:
            run, own = compiled.chunks, rates
            state, first = jax.tree.map(partial(_repeat, len(rates)), (state, first))
        if len(seeds) > 1:
            if key is None or not algorithm.starts_warm:
                begun = [(state, first)] * len(seeds)
            else:
                each = (compiled.begin(anywhere, x0, data, held, key) for key in keys)
                begun = [jax.tree.map(partial(_repeat, len(rates)), b) for b in each]
            state, first = jax.tree.map(lambda *a: jnp.stack(a, -1), *begun)
            key = None if key is None else jax.tree.map(lambda *a: jnp.stack(a), *keys)
        step, bound = (jnp.asarray(a, problem.dtype) for a in (own, limit))
        fixed = step, bound, data, held, key
        rows = chunk_rows(rounds, own_pace.chunk)

        def layout(start: int) -> Plan:
            now = [own[start : start + rows] for own in drawn]
            return plan(now, start, rows, slots, problem.num_clients, on_empty)

        def facts() -> Facts:
            begun = compiled.begin.lower(anywhere, x0, data, held, key)
            chunk = run.lower(program, state, *fixed, layout(0))
            return {
                "algorithm": words(algorithm), "objective": words(objective),
                "lr": own.tolist(), "rounds": rounds, "local_steps": local_steps,
                "seed": seeds if len(seeds) > 1 else seeds[0],
                "on_empty": on_empty, "record": record, "every": every,
                "dtype": str(problem.dtype), "x0": digest(x0), "data": digest(data),
                "held": digest(held),
                "participation": digest(active, *map(np.concatenate, drawn)),
                CODE: digest(begun.as_text(), chunk.as_text()),
            }  # fmt: skip

        state, first = kept.restore(state, _fetch(first, 1), facts)
        logs, running = [first], []
        enough = False
        if progress and len(first.alive) > 1:
            enough = bool(progress(len(first.alive) - 1, _last(first)))
        for start in range(len(first.alive) - 1, rounds, rows):
            if enough or not logs[-1].alive[-1].any():
                break
            state, log = run(program, state, *fixed, layout(start))
            kept.write()  # what was kept before this chunk, while it is running
            running.append((log, min(rows, rounds - start)))
            last = start + rows >= rounds
            due = kept.due() and not last
            # One chunk may run on while the next is laid out.
            while len(running) > (not last and not due):
                logs.append(_fetch(*running.pop(0)))
                if progress:
                    done = sum(len(log.alive) for log in logs) - 1
                    enough = bool(progress(done, _last(logs[-1])))
            if due:
                kept.keep(state, _whole(logs))
        logs += [_fetch(*more) for more in running]  # where it was enough
        whole = _whole(logs)
        if len(logs) > 1:
            kept.keep(state, whole)
            kept.write()
        missing = (runs == 1) + (len(seeds) == 1)  # axes
        whole, state = jax.tree.map(
            lambda a: a.reshape(*a.shape, *[1] * missing), (whole, state)
        )
        return [
            _result(anywhere, problem, data, whole, state, active[s], float(lr), (k, s))
            for s in range(len(seeds))
            for k, lr in enumerate(rates)
        ]


def _result(
    program: Program,
    problem: Problem,
    data: Tree,
    log: Log,
    state: State,
    active: np.ndarray,
    lr: float,
    which: tuple[int, int],
) -> Result:
    """Cut one run out of the runs side by side, and at the round that broke it."""
    alive = log.alive[:, *which]
    length = int(alive.sum())
    metrics, model = jax.tree.map(
        lambda a: a[:length, ..., *which], (log.metrics, log.model)
    )
    server, clients, *_ = jax.tree.map(lambda a: a[..., *which], state)
    clients = compiled.leave(program, clients, data) if alive.all() else None
    cost = costs(
        program.algorithm,
        problem.num_clients,
        active[: length - 1],
        program.local_steps,
    )
    server, clients = jax.tree.map(np.asarray, (server, clients))
    return Result(
        x=server.x,
        metrics=metrics | cost,
        trajectory=model,
        diverged_at=None if alive.all() else length - 1,
        lr=lr,
        why_lr=None,
        server=server,
        clients=clients,
    )


def _repeat(times: int, a: jax.Array) -> jax.Array:
    return jnp.broadcast_to(a[..., None], (*a.shape, times))


def _fetch(log: Log, rows: int) -> Log:
    """Wait for a chunk and drop its padding."""
    return jax.tree.map(lambda a: np.asarray(a)[:rows], log)


def _whole(logs: list[Log]) -> Log:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *logs)


def _last(log: Log) -> dict[str, Any]:
    """The last metrics of every run."""
    return {name: a[-1] for name, a in log.metrics.items()}

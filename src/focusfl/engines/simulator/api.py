"""The fast engine: jax, active clients as a batch axis, a scan over rounds.

Rounds run in chunks of one compiled program (program.py), drawn (drawn.py) and laid out
(plan.py) here on the host while the chunk before is running. What clients remember is
on the device, or elsewhere (store.py) and brought there chunk by chunk (table.py), or
spread over several devices (devices.py).
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from focusfl.checks import check_seed
from focusfl.core import Algorithm
from focusfl.engines.rest import warn
from focusfl.engines.simulator import compiled, memory
from focusfl.engines.simulator.cache import ClientCache
from focusfl.engines.simulator.checkpoint import (
    CODE,
    Facts,
    digest,
    open_checkpoint,
    words,
)
from focusfl.engines.simulator.chunks import Layout
from focusfl.engines.simulator.cohort import Program
from focusfl.engines.simulator.compiled import Bounds
from focusfl.engines.simulator.devices import Devices, devices_for
from focusfl.engines.simulator.driver import run_chunks
from focusfl.engines.simulator.layout import chunk_policy, chunk_rows, cohort_sizes
from focusfl.engines.simulator.logs import (
    fetch,
    one_of,
    result_of,
)
from focusfl.engines.simulator.schedule import ScheduleBuffer
from focusfl.engines.simulator.start import (
    begin,
    begin_on_device,
    stack_runs,
    to_model_coordinates,
)
from focusfl.engines.spec import (
    STEPS,
    ClientState,
    OnEmpty,
    Progress,
    Record,
    Result,
    StepSize,
    batch_stream,
    check,
    check_throw,
    choose_lr,
    finish,
    limit_of,
    rates_of,
    seeds_of,
)
from focusfl.engines.stop import Stop, spent_by
from focusfl.participation import Participation
from focusfl.problems import Problem
from focusfl.problems.loss import size
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
    throw: bool | None = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float | int = 60,
    client_state: ClientState = "auto",
    state_dir: str | Path | None = None,
    devices: int | None = None,
) -> Result:
    """Run one algorithm on one problem under one law of participation.

    A run that diverges is cut before the round that broke it, which `diverged_at`
    names, and warns; with `throw` it raises instead, with None it says nothing. Metrics
    are evaluated `every` so many rounds and after the last, and are NaN in between.
    With lr="auto" FOCUS gets a step size chosen for this problem and participation;
    `why_lr` says how.

    `stop` ends a run in the round that reaches a target. `progress` is told of the
    rounds done and the newest metrics between chunks of up to 256 rounds, and ends the
    run at the next such place by giving true.

    `checkpoint` names a folder for this run alone. Its whole state is written there,
    between chunks of up to 256 rounds, once `checkpoint_every` seconds have passed, and
    at the end. A run that was killed and is called again goes on from there, and gives
    the bits it would have given; one that had ended gives its result at once. It must
    be the same run, to the number of rounds and the versions: any other is refused.

    `client_state` says where clients' memory is: on the "device", in the memory of the
    "host", or on "disk", in files in `state_dir` (or the system's temporary folder)
    that are as large as the rows of those who took part and vanish with the result;
    with a checkpoint they are part of it. The bits are the same. "auto" is the first
    of these that it fits in. Off the device `Result.clients` has `Rows`, which are read
    when they are asked for.

    With `devices`, clients are spread over so many, and the numbers are those of one
    but for rounding. They may belong to several processes, after
    jax.distributed.initialize: all make the same call, with all devices there are and
    a `progress` that says the same in each, and get the same result.

    Args:
        algorithm: such as Focus(); any Algorithm.
        problem: what is minimised, and everybody's data.
        participation: the law of who takes part.
        rounds: how many to run.
        lr: step size, positive, or "auto" for FOCUS.
        local_steps: gradients per participant and round.
        x0: the model to start from, shaped as problem.x0; that if None.
        seed: of participation and batches.
        on_empty: of a round of nobody: "skip" it, or let the server "step" alone.
        record: "metrics" alone, or the "model" of every round too, as a trajectory.
        every: rounds from one evaluation to the next.
        throw: raise Diverged when the run diverges; False warns, None says nothing.
        stop: ends the run in the round that reaches a target.
        progress: called with the rounds done and the metrics by then; true ends it.
        checkpoint: a folder that the run goes on from if it was killed; none if None.
        checkpoint_every: seconds between checkpoints.
        client_state: "device", "host", "disk", or "auto": where clients' memory is.
        state_dir: folder for client_state="disk"; the system's temporary one if None.
        devices: how many to spread clients over; one if None.

    Raises:
        ValueError: If an argument is out of its range or does not fit the problem.
        Diverged: If the run diverges and `throw` is set.
    """
    check_throw(throw)
    check_seed("seed", seed)
    lr, why = choose_lr(lr, algorithm, problem, participation, local_steps)
    (result,) = sweep(
        algorithm, problem, participation, lrs=[lr], rounds=rounds,
        local_steps=local_steps, x0=x0, seed=seed, on_empty=on_empty, record=record,
        every=every, throw=None, progress=progress, stop=stop, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every, client_state=client_state,
        state_dir=state_dir, devices=devices,
    )  # fmt: skip
    warn(algorithm, problem, result, local_steps)
    finish([result], throw)
    return replace(result, why_lr=why)


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
    throw: bool | None = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float | int = 60,
    client_state: ClientState = "auto",
    state_dir: str | Path | None = None,
    devices: int | None = None,
) -> list[Result]:
    """Run one algorithm at several learning rates side by side, compiled once.

    With several seeds too, the results come seed by seed. `progress` gets the metrics
    of all of them, as arrays. Several runs have clients' memory on the device. Each
    ends where `stop` ends it alone.

    All else is as in `simulate`.

    Args:
        lrs: step sizes, positive; one run each.
        seed: of participation and batches; several are as many runs for every step.
        progress: called with the rounds done and the metrics by then; true ends all.
    """
    check_throw(throw)
    began, rates, seeds = time.monotonic(), rates_of(lrs), seeds_of(seed)
    x0 = check(
        algorithm, problem, participation, rounds, rates, local_steps, x0, seeds,
        on_empty, record, every, progress, stop,
    )  # fmt: skip
    stop = stop or Stop()
    many = problem.num_clients
    spread = devices_for(devices, many, client_state, checkpoint)
    drawn = ScheduleBuffer(participation, many, rounds, seeds)
    active = drawn.active
    policy = chunk_policy(size(x0), jax.default_backend() == "cpu")
    sizes = [[len(ids) for ids in own] for own in spread.shard(drawn.ahead)]
    slots = cohort_sizes(np.max(sizes, 0), spread.clients_per_device, policy)
    objective, data = problem.fast(local_steps)
    sometimes = bool((active.min(0) < np.minimum(active.max(0), 1)).any())
    skips = on_empty == "skip" and (sometimes or len(seeds) > 1 and not drawn.all)
    program = Program(
        algorithm, objective, spread, slots, int(local_steps), record,
        int(min(every, STEPS - 1)), skips,
    )  # fmt: skip
    x64 = jax.enable_x64(problem.dtype == "float64")
    kept_in = open_checkpoint(checkpoint, checkpoint_every)
    with x64, memory.hint_on_oom(slots[-1]), kept_in as kept:
        x0 = jax.tree.map(partial(jnp.asarray, dtype=problem.dtype), x0)
        keys = [batch_stream(objective, own) for own in seeds]
        key = keys[0]
        anywhere = program._replace(slots=(), skips=False)  # first and last need none
        held, runs = problem.held, len(rates) * len(seeds)
        alone = anywhere._replace(devices=Devices(many))
        needs = memory.needs(
            partial(begin, alone), x0, data, held, key, runs, spread.count
        )
        asked = client_state if spread.count == 1 else "device"
        where = memory.choose(asked, needs, algorithm, kept.folder is not None)
        data, held = spread.put(data, held)
        start = anywhere, x0, data, held
        table = None
        if where == "device":
            state, first = begin_on_device(*start, key)
        else:
            table = ClientCache(where == "disk", state_dir, kept)
            state, first = table.begin(*start, key, rounds * slots[-1])
        at_x0 = {name: a[0] for name, a in first.metrics.items()}
        limit, targets = limit_of(at_x0), stop.targets(at_x0)
        run, own = compiled.chunk, rates[0]
        if runs > 1:
            run, own = compiled.chunks, rates
            state, first = stack_runs((state, first), start, keys, len(rates))
        if len(seeds) > 1 and key is not None:
            key = jnp.stack(keys)
        over = spent_by(stop, algorithm, many)
        if over or any(targets):
            met = targets.met({name: a[0] for name, a in first.metrics.items()})
            met = jnp.asarray(met | bool(over and over(0)))
            met = jnp.broadcast_to(met, first.alive[0].shape).copy()
            state = state._replace(met=met)
        step, bound = (jnp.asarray(a, problem.dtype) for a in (own, limit))
        fixed = step, Bounds(bound, jnp.int32(rounds), targets), data, held, key
        rows = chunk_rows(
            rounds, policy.chunk, spread.count * slots[-1], needs.row if table else 0
        )
        layout = Layout(program, drawn, rounds, rows, on_empty, over)

        def facts() -> Facts:
            like = state, layout.nobodys(len(seeds))
            if table:
                like = table.like(*like)
            begun = begin.lower(*start, keys[0], algorithm.starts_warm)
            chunk = run.lower(program, like[0], *fixed, like[1])
            return {
                "algorithm": words(algorithm), "objective": words(objective),
                "lr": own.tolist(), "rounds": rounds, "local_steps": local_steps,
                "seed": seeds if len(seeds) > 1 else seeds[0],
                "on_empty": on_empty, "record": record, "every": every,
                "stop": words(replace(stop, seconds=None)),
                "dtype": str(problem.dtype), "x0": digest(x0), "data": digest(data),
                "held": digest(held), "client_state": where, "devices": spread.count,
                "participation": digest(active, *map(np.concatenate, drawn.ahead)),
                CODE: digest(begun.as_text(), chunk.as_text()),
            }  # fmt: skip

        state, first = (table or kept).restore(state, fetch(first, 1), facts)
        coming = layout.after(len(first.alive) - 1)
        with table or nullcontext():
            state, whole = run_chunks(
                lambda program, state, now: run(program, state, *fixed, now),
                coming, rounds, state, first, kept, table, stop.watch(progress, began),
            )  # fmt: skip
            if table:
                clients = table.export(anywhere, x0, data)
        axes, results = (runs > 1) + (len(seeds) > 1), []
        for s, k in product(range(len(seeds)), range(len(rates))):
            one = partial(one_of, (k, s)[:axes])
            server, met = one(state.server), bool(one(state.met))
            if table is None:
                clients = to_model_coordinates(anywhere, one(state.clients), data)
                clients = jax.tree.map(spread.fetch, clients)
            result = result_of(
                algorithm, many, local_steps, float(rates[k]), one(whole),
                drawn.active[s], server, clients, met, every, rounds,
                partial(compiled.evaluate, anywhere, server.x, held),
            )  # fmt: skip
            results.append(result)
    finish(results, throw)
    return results

"""The simulator's two functions: a cohort is a batch axis, rounds are a scan.

Rounds run in chunks of one compiled program (compiled.py), drawn and laid out
(layout.py) on the host while the chunk before is running. What clients
remember (clients.py) is on the device, or elsewhere (rows.py) and brought there chunk
by chunk (cache.py), or spread over several devices (devices.py).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from focusfl.core import Algorithm, C, S
from focusfl.core.tree import Tree
from focusfl.core.validation import check_seed
from focusfl.participation import Participation
from focusfl.privacy.budgets import warn_of_budget
from focusfl.problems import Problem
from focusfl.simulation.divergence import finish
from focusfl.simulation.rest import warn
from focusfl.simulation.result import Result
from focusfl.simulation.simulation import Simulation
from focusfl.simulation.spec import (
    ClientState,
    Execution,
    LearningRate,
    OnDivergence,
    OnEmpty,
    Progress,
    RunSpec,
    check_on_divergence,
    choose_lr,
    rates_of,
    seeds_of,
)
from focusfl.simulation.step_sizes import Schedule
from focusfl.simulation.stop import Stop


def simulate(
    algorithm: Algorithm[S, C, Any],
    problem: Problem,
    participation: Participation,
    *,
    rounds: int,
    lr: LearningRate,
    local_steps: int = 1,
    x0: Tree | None = None,
    seed: int = 0,
    on_empty: OnEmpty = "skip",
    record_models: bool = False,
    eval_every: int = 1,
    per_client: bool = False,
    on_divergence: OnDivergence = "warn",
    progress: Progress | None = None,
    stop: Stop | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float | int = 60,
    client_state: ClientState = "auto",
    state_dir: str | Path | None = None,
    devices: int | None = None,
) -> Result[S, C]:
    """Run one algorithm on one problem under one law of participation.

    A run that diverges is cut before the round that broke it, which `diverged_at`
    names, and warns; `on_divergence` says whether it then warns, raises or does neither. Metrics
    are evaluated every `eval_every` rounds and after the last, and are NaN in between.
    `lr` may be a function of the round, such as one of `ff.schedules` or optax's: it is
    asked for all rounds before the first. With lr="auto" a step size is chosen for
    this problem and participation, for FOCUS where L is known and for any algorithm on
    a network, where it costs 7 to 28 runs of 40 rounds; `why_lr` says how. A run of a
    network whose loss doubles, or of a classifier does not fall in 20 rounds, warns
    (`StepWarning`).

    With per_client=True the model is evaluated on each client's own data too, or
    on the `client_eval_data` of the problem. Of every metric there are then the worst
    client's, such as "accuracy/worst", the mean over the tenth of clients that have the
    worst, "accuracy/worst_tenth", and the standard deviation over clients,
    "accuracy/spread"; `Result.clients_metrics` has everybody's in the end.

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
    with a checkpoint they are part of it. The numbers are the same but for rounding.
    "auto" is the first of these that it fits in. Off the device `Result.clients` has
    `Rows`, which are read when they are asked for.

    With `devices`, clients are spread over so many, and the numbers are those of one
    but for rounding. They may belong to several processes, after
    jax.distributed.initialize: all make the same call, with all devices there are and
    a `progress` that says the same in each, and get the same result.

    Args:
        algorithm: such as Focus(); any Algorithm.
        problem: what is minimised, and everybody's data.
        participation: the law of who takes part.
        rounds: how many to run.
        lr: step size, positive; a function of the round; or "auto".
        local_steps: gradients per participant and round.
        x0: the model to start from, shaped as problem.x0; that if None.
        seed: of participation and batches.
        on_empty: of a round of nobody: "skip" it, or let the server "step" alone.
        record_models: whether to keep the model of every round, as `trajectory`.
        eval_every: rounds from one evaluation to the next.
        per_client: whether to evaluate the model on each client's own data too.
        on_divergence: "warn", "raise" Diverged, or "ignore".
        stop: ends the run in the round that reaches a target.
        progress: called with the rounds done and the metrics by then; true ends it.
        checkpoint: a folder that the run goes on from if it was killed; none if None.
        checkpoint_every: seconds between checkpoints.
        client_state: "device", "host", "disk", or "auto": where clients' memory is.
        state_dir: folder for client_state="disk"; the system's temporary one if None.
        devices: how many to spread clients over; one if None.

    Raises:
        ValueError: If an argument is out of its range or does not fit the problem.
        Diverged: If the run diverges and on_divergence="raise".
    """
    check_on_divergence(on_divergence)
    check_seed("seed", seed)
    lr, why = choose_lr(lr, algorithm, problem, participation, local_steps)
    spec = RunSpec(
        algorithm, problem, participation, rounds, [lr], local_steps, x0, [seed],
        on_empty, record_models, eval_every, stop, per_client,
    ).validated()  # fmt: skip
    how = Execution(progress, checkpoint, checkpoint_every, client_state, state_dir, devices)
    (result,) = Simulation(spec, how).run()
    warn_of_budget(problem, result)
    warn(algorithm, problem, result, local_steps)
    finish([result], on_divergence)
    return replace(result, why_lr=why)


def sweep(
    algorithm: Algorithm[S, C, Any],
    problem: Problem,
    participation: Participation,
    *,
    lrs: Sequence[float | Schedule],
    rounds: int,
    local_steps: int = 1,
    x0: Tree | None = None,
    seed: int | Sequence[int] = 0,
    on_empty: OnEmpty = "skip",
    record_models: bool = False,
    eval_every: int = 1,
    per_client: bool = False,
    on_divergence: OnDivergence = "warn",
    progress: Progress | None = None,
    stop: Stop | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float | int = 60,
    client_state: ClientState = "auto",
    state_dir: str | Path | None = None,
    devices: int | None = None,
) -> list[Result[S, C]]:
    """Run one algorithm at several learning rates side by side, compiled once.

    With several seeds too, the results come seed by seed. `progress` gets the metrics
    of all of them, as arrays. Several runs have clients' memory on the device. Each
    ends where `stop` ends it alone.

    All else is as in `simulate`, but that it does not choose a step, and does not warn
    of runs that rest away from the optimum.

    Args:
        lrs: step sizes, positive, or functions of the round; one run each.
        seed: of participation and batches; several are as many runs for every step.
        progress: called with the rounds done and the metrics by then; true ends all.
    """
    check_on_divergence(on_divergence)
    spec = RunSpec(
        algorithm, problem, participation, rounds, rates_of(lrs), local_steps, x0,
        seeds_of(seed), on_empty, record_models, eval_every, stop, per_client,
    ).validated()  # fmt: skip
    how = Execution(progress, checkpoint, checkpoint_every, client_state, state_dir, devices)
    results = Simulation(spec, how).run()
    finish(results, on_divergence)
    return results

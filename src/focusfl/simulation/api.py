"""Run an algorithm fast: `simulate` one run, `sweep` several side by side.

A cohort is a batch axis and rounds are a scan: they run in chunks of one compiled
program. Who takes part in the next chunk is drawn while one is running.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from focusfl.core import Algorithm, C, S
from focusfl.core.compilation import use_compilation_cache
from focusfl.core.result import Result
from focusfl.core.tree import Tree
from focusfl.core.validation import check_is, check_seed
from focusfl.participation import Participation
from focusfl.privacy.budgets import warn_of_budget
from focusfl.problems import Problem
from focusfl.simulation.callbacks import Callbacks, split_callbacks
from focusfl.simulation.divergence import finish, warn_of_rest
from focusfl.simulation.runner import Runner
from focusfl.simulation.spec import (
    DEFAULT_OPTIONS,
    LearningRate,
    Options,
    RunSpec,
    choose_lr,
    rates_of,
    seeds_of,
)
from focusfl.simulation.step_sizes import Schedule


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
    eval_every: int = 1,
    per_client: bool = False,
    callbacks: Callbacks = (),
    options: Options = DEFAULT_OPTIONS,
) -> Result[S, C]:
    """Run one algorithm on one problem under one participation model.

    Args:
        algorithm: such as Focus(); any Algorithm.
        problem: what is minimised, and all clients' data.
        participation: who takes part in which round.
        rounds: how many to run.
        lr: step size, positive; or a function of the round, such as one of
            `ff.schedules` or optax's; or "auto", which chooses one for this problem and
            participation (`Result.why_lr` says how): for FOCUS where L is known, and
            for any algorithm on a network, at the cost of 7 to 28 runs of 40 rounds.
        local_steps: gradients per participant and round.
        x0: the model to start from, shaped as problem.x0; that if None.
        seed: of participation and batches.
        eval_every: rounds between evaluations; metrics are NaN in between. The start
            and the end are always evaluated.
        per_client: whether to evaluate the model on each client's own data too, or on
            the problem's `client_eval_data`. Each metric then also has the worst
            client's value ("accuracy/worst"), the mean over the tenth of clients with
            the worst values ("accuracy/worst_tenth") and the standard deviation over
            clients ("accuracy/spread"); `Result.clients_metrics` has every client's at
            the end.
        callbacks: an `ff.Stop`, which ends the run in the round that reaches a target;
            a function, which is called between chunks of up to 256 rounds with the
            rounds done and the newest metrics, and ends the run after at most one
            more chunk if it returns true; or a list of these.
        options: checkpoints, where clients keep their state, devices, whether models
            are recorded, and what to do in a round without participants and when a run
            diverges; see `Options`.

    Returns:
        The run's outcome. A run that diverges ends before the round that broke it,
        which `diverged_at` names, and warns unless `options` say otherwise. A network
        whose loss doubles, or a classifier whose loss does not fall within 20 rounds,
        warns too (`StepWarning`).

    Raises:
        ValueError: If an argument is out of its range or does not fit the problem.
        Diverged: If the run diverges, with Options(on_divergence="raise").
    """
    use_compilation_cache()
    check_is("options", options, Options)
    stop, progress = split_callbacks(callbacks)
    check_seed("seed", seed)
    lr, why = choose_lr(lr, algorithm, problem, participation, local_steps)
    spec = RunSpec(
        algorithm, problem, participation, rounds, [lr], local_steps, x0, [seed],
        options.on_empty, eval_every, stop, per_client,
    ).validated()  # fmt: skip
    (result,) = Runner(spec, options, progress).run()
    warn_of_budget(problem, result)
    warn_of_rest(algorithm, problem, result, local_steps)
    finish([result], options.on_divergence)
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
    eval_every: int = 1,
    per_client: bool = False,
    callbacks: Callbacks = (),
    options: Options = DEFAULT_OPTIONS,
) -> list[Result[S, C]]:
    """Run one algorithm at several step sizes and seeds side by side, compiled once.

    All else is as in `simulate`, except that no step size is chosen, and runs that rest
    away from the optimum do not warn. Each run ends where a `Stop` ends it alone; a
    function among the callbacks gets the metrics of all runs, as arrays, and ends all.

    Args:
        lrs: step sizes, positive, or functions of the round; one run each.
        seed: of participation and batches; each of several runs at every step size.

    Returns:
        The results seed by seed, each at every step size.
    """
    use_compilation_cache()
    check_is("options", options, Options)
    stop, progress = split_callbacks(callbacks)
    spec = RunSpec(
        algorithm, problem, participation, rounds, rates_of(lrs), local_steps, x0,
        seeds_of(seed), options.on_empty, eval_every, stop, per_client,
    ).validated()  # fmt: skip
    results = Runner(spec, options, progress).run()
    finish(results, options.on_divergence)
    return results

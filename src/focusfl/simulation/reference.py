"""The reference engine: one round after the other, one client after the other.

Slow and plain, on any array library. What `simulate` does must equal this.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from focusfl.core import Algorithm, C, GradFn, Round, S, tree
from focusfl.core import metrics as evaluation
from focusfl.core.result import Result, costs
from focusfl.core.tree import Tree
from focusfl.core.validation import check_is
from focusfl.participation import Participation, schedule
from focusfl.privacy.budgets import warn_of_budget, with_epsilon
from focusfl.problems import Problem
from focusfl.simulation.callbacks import BudgetSpent, Callbacks, Progress, Stop, split_callbacks
from focusfl.simulation.client_round import (
    batch_stream,
    batches_of,
    client_round,
    grad_fn,
)
from focusfl.simulation.divergence import finish, limit_of, number, sane, warn_of_rest
from focusfl.simulation.spec import (
    DEFAULT_OPTIONS,
    LearningRate,
    Options,
    RunSpec,
    choose_lr,
)
from focusfl.simulation.step_sizes import in_words, step_of, used

Row = dict[str, float]  # the metrics of a round


class State(NamedTuple):
    server: Any
    clients: list
    steps: list[int]  # gradients each client has computed so far


def loop(
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
    array: Callable[[np.ndarray], Any] = np.asarray,
) -> Result[S, C]:
    """Run one algorithm in plain Python, on any array library.

    All else is as in `simulate`; of `options`, it knows record_models,
    on_divergence and on_empty.

    Args:
        array: makes a leaf of a numpy array, such as torch.asarray.
    """
    began = time.monotonic()
    _check_options(options)
    stop, progress = split_callbacks(callbacks)
    lr, why = choose_lr(lr, algorithm, problem, participation, local_steps)
    spec = RunSpec(
        algorithm, problem, participation, rounds, [lr], local_steps, x0, [seed],
        options.on_empty, eval_every, stop, per_client,
    ).validated()  # fmt: skip
    _check_array(array)
    coming = states(spec, array)
    objective = problem.objective
    eval_data = tree.map(array, evaluation.eval_data_of(problem, per_client))

    def evaluate(x: Tree) -> Row:
        with np.errstate(all="ignore"):  # a diverging run overflows before it is caught
            found = evaluation.evaluate(objective, per_client, x, eval_data)
            return {name: number(name, value) for name, value in found.items()}

    def due(done: int) -> bool:
        return done % eval_every == 0 or done == rounds

    budget_spent = stop.budget(algorithm, problem.num_clients, spec.x0)
    watch = stop.watch(progress, began)
    state, kept = _followed(coming, evaluate, due, stop, budget_spent, watch, options.record_models)
    counts, own = np.array(kept.counts, int), {}
    if per_client:
        own = evaluation.evaluate_clients(objective, state.server.x, eval_data)
    result = Result(
        x=tree.map(np.asarray, state.server.x),
        metrics={k: np.array([row[k] for row in kept.rows]) for k in kept.rows[0]}
        | costs(algorithm, problem.num_clients, counts, local_steps, spec.x0)
        | spec.time(len(counts), seed),
        trajectory=_stack(kept.models) if options.record_models else None,
        diverged_at=kept.diverged_at,
        lr=used(spec.lrs[0], len(counts), kept.diverged_at),
        why_lr=why,
        server=tree.map(np.asarray, state.server),
        clients=_stack(state.clients) if kept.diverged_at is None else None,
        schedule=in_words(spec.lrs[0]),
        weights=problem.weights,
        clients_metrics=tree.map(np.asarray, own),
    )
    result = with_epsilon(spec, result, seed)
    warn_of_budget(problem, result)
    warn_of_rest(algorithm, problem, result, local_steps)
    finish([result], options.on_divergence)
    return result


def _check_options(options: Options) -> None:
    check_is("options", options, Options)
    for name in ("checkpoint", "client_state", "state_folder", "devices"):
        if getattr(options, name) != getattr(DEFAULT_OPTIONS, name):
            raise ValueError(f"loop has no {name}: it keeps all in memory; use simulate.")


def _check_array(array: Any) -> None:
    if not callable(array) or not hasattr(array(np.zeros(1)), "shape"):
        raise ValueError(
            f"array must make an array of one of numpy's, as torch.from_numpy does; got {array!r}."
        )


class Kept(NamedTuple):
    """What is kept of a run's rounds."""

    rows: list[Row]
    counts: list[int]
    models: list[Tree]
    diverged_at: int | None


def _followed(
    coming: Iterator[tuple[State, int | None]],
    evaluate: Callable[[Tree], Row],
    due: Callable[[int], bool],
    stop: Stop,
    budget_spent: BudgetSpent | None,
    watch: Progress | None,
    record_models: bool,
) -> tuple[State, Kept]:
    """Follow a run to its end: all rounds, enough of them, or divergence."""
    rows: list[Row] = []
    kept = Kept(rows, [], [], None)
    for now, active in coming:
        fresh = due(len(rows))
        if fresh:
            row = evaluate(now.server.x)
        if not rows:
            limit, targets = limit_of(row), stop.targets(row)
        if not (sane(row, limit) and _finite(now.server.x)):
            kept = kept._replace(diverged_at=len(kept.counts))
            break
        state = now
        rows.append(row if fresh else dict.fromkeys(row, np.nan))
        if record_models:
            kept.models.append(tree.map(np.asarray, state.server.x))
        enough = bool(targets.met(row))
        if active is not None:
            kept.counts.append(active)
            enough |= bool(watch and watch(len(kept.counts), row))
        if enough or budget_spent and budget_spent(sum(kept.counts)):
            break
    rows[-1] = evaluate(state.server.x)  # wherever it ended
    return state, kept


def play_round(
    algorithm: Algorithm,
    server: Any,
    clients: Sequence[Any],
    ids: Sequence[int],
    rd: Round,
    gradients: Sequence[GradFn],
    batches: Callable[[int, int], Iterable[Any]],
    *,
    weights: Sequence[float] | None = None,
    local_steps: Sequence[int] | None = None,
    lost: Collection[int] = (),
    keeps_lost: bool = False,
    moves: bool = True,
) -> tuple[Any, list[Any]]:
    """Carry out one round in plain Python; give the server's and the clients' new state.

    Args:
        algorithm: whose round it is.
        server: the server's state.
        clients: every client's state.
        ids: who takes part.
        rd: what the round knows of itself.
        gradients: every client's gradient.
        batches: what a client's gradients are drawn from, by client and number of steps.
        weights: of clients; all alike if None.
        local_steps: of every client; as many as the round says if None.
        lost: participants whose reply does not arrive.
        keeps_lost: whether they keep the state that they replied from all the same.
        moves: whether the server takes its step; not in a round of nobody that is skipped.
    """
    clients, down = list(clients), algorithm.broadcast(server)
    # A participant that took no step shows the shape of a message.
    no_steps = algorithm.push(clients[0], down, algorithm.pull(clients[0], down), rd)
    total = tree.zeros(no_steps[1])
    for i in ids:
        own = rd if local_steps is None else rd._replace(local_steps=local_steps[i])
        client, up = client_round(
            algorithm, clients[i], down, gradients[i], batches(i, own.local_steps), own
        )
        if i not in lost:
            total = tree.add(total, up if weights is None else tree.scale(weights[i], up))
        if keeps_lost or i not in lost:
            clients[i] = client
    if moves:
        server = algorithm.update(server, total, rd)
    answer = algorithm.broadcast(server)
    for i in ids:
        if i not in lost:
            clients[i] = algorithm.after_update(clients[i], answer, rd)
    return server, clients


def states(
    spec: RunSpec, array: Callable[[np.ndarray], Any] = np.asarray
) -> Iterator[tuple[State, int | None]]:
    """Yield the state before round 0 and after each round, with the round's |S|.

    Of one run, at the first of the step sizes and seeds.
    """
    algorithm, problem = spec.algorithm, spec.problem
    num_clients, objective = problem.num_clients, problem.objective
    everybody, weights = problem.total_weight, problem.weights
    each = None if weights is None else np.asarray(weights, float).tolist()
    lr, seed = spec.lrs[0], spec.seeds[0]
    key = batch_stream(objective, seed)
    grads = [
        grad_fn(objective, tree.map(lambda leaf, i=i: array(leaf[i]), problem.data))
        for i in range(num_clients)
    ]

    def play(state: State, ids, rd: Round) -> State:
        steps = list(state.steps)
        for i in ids:
            steps[i] += rd.local_steps

        def batches(i: int, count: int) -> Iterator[Any]:
            return map(batches_of(objective, key, i), range(steps[i] - count, steps[i]))

        server, clients = play_round(
            algorithm, state.server, state.clients, ids, rd, grads, batches, weights=each,
            moves=bool(len(ids)) or spec.on_empty == "step",
        )  # fmt: skip
        return State(server, clients, steps)

    server, client = algorithm.init(tree.map(array, spec.x0))
    state = State(server, [client] * num_clients, [0] * num_clients)
    if algorithm.starts_warm:
        warm = Round(-1, 0.0, 1, everybody, everybody)
        state = play(state, range(num_clients), warm)
    yield state, None
    rounds = schedule(spec.participation, num_clients, spec.rounds, seed)
    for index, drawn in enumerate(rounds):
        with np.errstate(all="ignore"):
            ids = drawn.tolist()
            active = math.fsum(each[i] for i in ids) if each else len(ids)
            rd = Round(index, step_of(lr, index), spec.local_steps, everybody, active)
            state = play(state, ids, rd)
        yield state, len(ids)


def _finite(x: Tree) -> bool:
    found: list[bool] = []
    tree.map(lambda a: found.append(bool(np.isfinite(np.asarray(a)).all())), x)
    return all(found)


def _stack(trees: list[Tree]) -> Tree:
    return tree.map(lambda *leaves: np.stack([np.asarray(a) for a in leaves]), *trees)

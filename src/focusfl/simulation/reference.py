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
from focusfl.core.result import Result
from focusfl.core.tree import Tree
from focusfl.core.validation import check_is
from focusfl.participation import Participation, schedule
from focusfl.privacy.budgets import warn_of_budget
from focusfl.problems import Problem
from focusfl.simulation.callbacks import Callbacks, split_callbacks
from focusfl.simulation.client_round import batch_stream, batches_of, client_round, grad_fn
from focusfl.simulation.divergence import finish, limit_of, number, sane, warn_of_rest
from focusfl.simulation.spec import DEFAULT_OPTIONS, LearningRate, Options, RunSpec, choose_lr
from focusfl.simulation.step_sizes import step_of


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
    objective = problem.objective
    eval_data = tree.map(array, evaluation.eval_data_of(problem, per_client))

    def evaluate(x: Tree) -> dict[str, float]:
        with np.errstate(all="ignore"):  # a diverging run overflows before it is caught
            values = evaluation.evaluate(objective, per_client, x, eval_data)
            return {name: number(name, value) for name, value in values.items()}

    budget_spent = stop.budget(algorithm, problem.num_clients, spec.x0)
    watch = stop.watch(progress, began)
    rows: list[dict[str, float]] = []
    counts: list[int] = []  # of participants
    models: list[Tree] = []
    diverged_at = None
    for after, active in states(spec, array):
        is_due = len(rows) % eval_every == 0 or len(rows) == rounds
        if is_due:
            row = evaluate(after.server.x)
        if not rows:
            limit, targets = limit_of(row), stop.targets(row)
        if not (sane(row, limit) and _is_finite(after.server.x)):
            diverged_at = len(counts)
            break
        state = after
        rows.append(row if is_due else dict.fromkeys(row, np.nan))
        if options.record_models:
            models.append(tree.map(np.asarray, state.server.x))
        is_done = bool(targets.met(row))
        if active is not None:
            counts.append(active)
            is_done |= bool(watch and watch(len(counts), row))
        if is_done or budget_spent and budget_spent(sum(counts)):
            break
    rows[-1] = evaluate(state.server.x)  # wherever it ended
    x = state.server.x
    clients_metrics = evaluation.evaluate_clients(objective, x, eval_data) if per_client else {}
    result = spec.result(
        spec.lrs[0],
        seed,
        np.array(counts, int),
        metrics={name: np.array([row[name] for row in rows]) for name in rows[0]},
        diverged_at=diverged_at,
        server=tree.map(np.asarray, state.server),
        clients=_stack(state.clients) if diverged_at is None else None,
        trajectory=_stack(models) if options.record_models else None,
        clients_metrics=tree.map(np.asarray, clients_metrics),
        why_lr=why,
    )
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
        client_rd = rd if local_steps is None else rd._replace(local_steps=local_steps[i])
        client, up = client_round(
            algorithm, clients[i], down, gradients[i], batches(i, client_rd.local_steps), client_rd
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


def _is_finite(x: Tree) -> bool:
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in tree.leaves(x))


def _stack(trees: list[Tree]) -> Tree:
    return tree.map(lambda *leaves: np.stack([np.asarray(a) for a in leaves]), *trees)

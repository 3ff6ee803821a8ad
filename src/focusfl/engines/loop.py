"""The reference engine: one round after the other, one client after the other.

Slow and plain, on any array library. What `simulate` does must equal this.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from focusfl import tree
from focusfl.core import Algorithm, Round
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
    grad_fn,
    limit_of,
    next_batch,
    sane,
)
from focusfl.participation import Participation, schedule
from focusfl.participation.model import Ids
from focusfl.problems import Problem
from focusfl.tree import Tree


class State(NamedTuple):
    server: Any
    clients: list
    steps: list[int]  # gradients each client has computed so far


def loop(
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
    array: Callable[[np.ndarray], Any] = np.asarray,
) -> Result:
    """Run one algorithm in plain Python; `array` makes the leaves.

    All else is as in `simulate`.

    Args:
        array: makes a leaf of a numpy array, such as torch.asarray.
    """
    lr, why = choose_lr(lr, algorithm, problem, participation, local_steps)
    x0 = check(
        algorithm, problem, participation, rounds, np.atleast_1d(lr), local_steps, x0,
        on_empty, record, every,
    )  # fmt: skip
    evaluate, held = problem.objective.evaluate, tree.map(array, problem.held)
    rows: list[dict[str, float]] = []
    models: list[Tree] = []
    counts: list[int] = []
    diverged_at, limit = None, float("inf")
    for now, active in states(
        algorithm, problem, schedule(participation, problem.num_clients, rounds, seed),
        lr=lr, local_steps=local_steps, x0=x0, seed=seed, on_empty=on_empty,
        array=array,
    ):  # fmt: skip
        with np.errstate(all="ignore"):  # a diverging run overflows before it is caught
            if len(rows) % every == 0:
                row = {k: float(v) for k, v in evaluate(now.server.x, held).items()}
            if not (sane(row, limit) and _finite(now.server.x)):
                diverged_at = len(counts)
                break
        state = now
        limit = limit if rows else limit_of(row)
        rows.append(row)
        if record == "model":
            models.append(tree.map(np.asarray, state.server.x))
        if active is not None:
            counts.append(active)
            if progress and progress(len(counts), row):
                break
    result = Result(
        x=tree.map(np.asarray, state.server.x),
        metrics={name: np.array([row[name] for row in rows]) for name in rows[0]}
        | costs(algorithm, problem.num_clients, np.array(counts, int), local_steps),
        trajectory=_stack(models) if record == "model" else None,
        diverged_at=diverged_at,
        lr=lr,
        why_lr=why,
        server=tree.map(np.asarray, state.server),
        clients=_stack(state.clients) if diverged_at is None else None,
    )
    return finish(result, throw)


def states(
    algorithm: Algorithm,
    problem: Problem,
    rounds: Iterable[Ids],
    *,
    lr: float,
    local_steps: int,
    x0: Tree,
    seed: int = 0,
    on_empty: OnEmpty = "skip",
    array: Callable[[np.ndarray], Any] = np.asarray,
) -> Iterator[tuple[State, int | None]]:
    """Yield the state before round 0 and after each round, with the round's |S|."""
    num_clients, objective = problem.num_clients, problem.objective
    key = batch_stream(objective, seed)
    grads = [
        grad_fn(objective, tree.map(lambda leaf, i=i: array(leaf[i]), problem.data))
        for i in range(num_clients)
    ]

    def play(state: State, ids, rd: Round) -> State:
        server, clients, steps = state.server, list(state.clients), list(state.steps)
        down = algorithm.broadcast(server)
        # A participant that took no step shows the shape of a message.
        idle_push = algorithm.push(
            clients[0], down, algorithm.pull(clients[0], down), rd
        )
        total = tree.zeros(idle_push[1])
        for i in ids:
            local = algorithm.pull(clients[i], down)
            for _ in range(rd.local_steps):
                batch = next_batch(objective, key, i, steps[i])
                local = algorithm.step(local, grads[i], batch, rd)
                steps[i] += 1
            clients[i], up = algorithm.push(clients[i], down, local, rd)
            total = tree.add(total, up)
        if len(ids) or on_empty == "step":
            server = algorithm.update(server, total, rd)
        answer = algorithm.broadcast(server)
        present = set(ids)
        for i in range(num_clients):
            if i in present:
                clients[i] = algorithm.settle(clients[i], answer, rd)
            else:
                clients[i] = algorithm.idle(clients[i], rd)
        return State(server, clients, steps)

    server, client = algorithm.init(tree.map(array, x0))
    state = State(server, [client] * num_clients, [0] * num_clients)
    if algorithm.starts_warm:
        everybody = Round(-1, 0.0, 1, num_clients, num_clients)
        state = play(state, range(num_clients), everybody)
    yield state, None
    for index, ids in enumerate(rounds):
        with np.errstate(all="ignore"):
            ids = ids.tolist()
            rd = Round(index, float(lr), local_steps, num_clients, len(ids))
            state = play(state, ids, rd)
        yield state, len(ids)


def _finite(x: Tree) -> bool:
    found: list[bool] = []
    tree.map(lambda a: found.append(bool(np.isfinite(np.asarray(a)).all())), x)
    return all(found)


def _stack(trees: list[Tree]) -> Tree:
    return tree.map(lambda *leaves: np.stack([np.asarray(a) for a in leaves]), *trees)

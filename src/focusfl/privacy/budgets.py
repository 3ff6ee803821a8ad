"""Privacy in a simulation: who may take part within a budget, and what was given away."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from focusfl.core import Algorithm, Round, tree
from focusfl.participation import Participation, schedule
from focusfl.participation.timed import Timed
from focusfl.privacy.noise import Private

EPSILON, MEDIAN, LEFT = "epsilon", "epsilon/median", "visits_left"
MAX_NAMED = 5  # clients that a warning names


class BudgetWarning(UserWarning):
    """Clients have spent their privacy budget and take part no more."""


@dataclass(frozen=True, eq=False)
class Limited(Participation):
    """Another participation, in which each client takes part at most `visits` times."""

    inner: Participation
    visits: int

    def check(self, num_clients):
        self.inner.check(num_clients)

    def begin(self, num_clients, rng):
        return self.inner.begin(num_clients, rng), np.zeros(num_clients, np.int64)

    def draw(self, state, rounds, num_clients, rng):
        inner, visits = state
        inner, drawn = self.inner.draw(inner, rounds, num_clients, rng)
        visits, allowed = visits.copy(), []
        for ids in drawn:
            ids = ids[visits[ids] < self.visits]
            visits[ids] += 1
            allowed.append(ids)
        return (inner, visits), allowed

    def marginals(self, num_clients):
        raise ValueError(
            "there are no marginals under a privacy budget: how often a client takes "
            "part changes when its budget is spent."
        )


def within_budget(spec: Any) -> Participation:
    """Give the participation of a run without the clients whose budget is spent.

    Args:
        spec: a `RunSpec`.

    Raises:
        ValueError: If the problem is private and the algorithm, the participation or the
            budget does not suit it.
    """
    if isinstance(spec.problem, Private):
        if isinstance(spec.participation, Timed):
            raise ValueError(
                "a private problem takes no latency model: replies that come too late are "
                "not counted as taking part, and what they give away would not be either."
            )
        check_one_gradient(spec.algorithm, spec.x0)
    return budgeted(spec.participation, spec.problem, spec.algorithm, spec.local_steps)


def budgeted(
    participation: Participation, problem: Any, algorithm: Algorithm, local_steps: int
) -> Participation:
    """Limit a participation to the problem's privacy budget, if it has one."""
    budget = problem.budget if isinstance(problem, Private) else None
    if budget is None or isinstance(participation, Limited):
        return participation
    return Limited(participation, problem.visits(local_steps, int(algorithm.starts_warm)))


def with_epsilon(spec: Any, result: Any, seed: int) -> Any:
    """Add to a `Result` what each client has given away, if its problem is private.

    Args:
        spec: the `RunSpec`.
        result: the `Result` of this seed.
        seed: of the run.
    """
    problem = spec.problem
    if not isinstance(problem, Private) or not problem.noise:
        return result
    evaluated = set(result.evaluated.tolist())
    rounds, diverged = max(evaluated), result.diverged_at is not None
    visits, curve = np.zeros(spec.num_clients, np.int64), []
    participants = schedule(spec.participation, spec.num_clients, spec.rounds, seed)
    for done in range(rounds + 1):
        if done in evaluated:
            ordered = np.sort(visits)
            curve.append((ordered[-1], ordered[len(ordered) // 2]))
        # The gradients of the round that diverged were computed, too.
        if done < rounds or diverged:
            visits[next(participants)] += 1
    first, steps = int(spec.algorithm.starts_warm), spec.local_steps
    counts = first + steps * np.array(curve)
    epsilons = problem.epsilons(np.concatenate([counts.ravel(), first + steps * visits]))
    metrics = np.full((len(result.metrics["down"]), 2), np.nan)
    metrics[result.evaluated] = epsilons[: counts.size].reshape(counts.shape)
    by_client = {EPSILON: epsilons[counts.size :]}
    if isinstance(spec.participation, Limited):
        by_client[LEFT] = spec.participation.visits - visits
    return replace(
        result,
        metrics=result.metrics | {EPSILON: metrics[:, 0], MEDIAN: metrics[:, 1]},
        clients_metrics=result.clients_metrics | by_client,
    )


def budget_spent(problem: Any, result: Any) -> str | None:
    """Say which clients have spent their privacy budget; None if no client has."""
    left = result.clients_metrics.get(LEFT)
    if left is None or left.all():
        return None
    ids = np.flatnonzero(left == 0)
    names = ", ".join(map(str, ids[:MAX_NAMED].tolist())) + ", ..." * (len(ids) > MAX_NAMED)
    return (
        f"{len(ids)} of {len(left)} clients have spent their privacy budget of "
        f"epsilon {problem.budget:g} and took part no more: {names}"
    )


def warn_of_budget(problem: Any, result: Any) -> None:
    """Warn if clients have spent their budget."""
    if words := budget_spent(problem, result):
        warnings.warn(f"{words}.", BudgetWarning, stacklevel=3)


def check_one_gradient(algorithm: Algorithm, x: Any) -> None:
    """Raise ValueError unless a local step computes one gradient.

    Two in one step would carry the same noise, and their difference none.
    """
    count = 0

    def grad_fn(x: Any, batch: Any) -> Any:
        nonlocal count
        del batch
        count += 1
        return tree.zeros(x)

    server, client = algorithm.init(x)
    local = algorithm.pull(client, algorithm.broadcast(server))
    algorithm.step(local, grad_fn, None, Round(0, 1.0, 1, 1, 1))
    if count != 1:
        raise ValueError(
            "a private problem needs an algorithm that asks for one gradient in a local "
            f"step; {type(algorithm).__name__} asks for {count}."
        )

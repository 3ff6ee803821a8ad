"""Privacy in a run: who may take part within a budget, and what was given away."""

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.core import Algorithm, Round, tree
from focusfl.participation import Participation, schedule
from focusfl.participation.timed import Timed
from focusfl.problems import Private
from focusfl.simulation.result import Result

if TYPE_CHECKING:
    from focusfl.simulation.spec import RunSpec

EPSILON, MEDIAN, LEFT = "epsilon", "epsilon/median", "visits_left"
NAMED = 5  # clients that a warning names


class BudgetWarning(UserWarning):
    """Clients have spent their privacy budget and take part no more."""


@dataclass(frozen=True, eq=False)
class Limited(Participation):
    """Another law, in which a client that took part so often does so no more."""

    law: Participation
    visits: int

    def check(self, num_clients):
        self.law.check(num_clients)

    def begin(self, num_clients, rng):
        return self.law.begin(num_clients, rng), np.zeros(num_clients, np.int64)

    def draw(self, state, rounds, num_clients, rng):
        inner, taken = state
        inner, drawn = self.law.draw(inner, rounds, num_clients, rng)
        taken, kept = taken.copy(), []
        for ids in drawn:
            ids = ids[taken[ids] < self.visits]
            taken[ids] += 1
            kept.append(ids)
        return (inner, taken), kept

    def marginals(self, num_clients):
        raise ValueError(
            "there are no marginals under a privacy budget: how often a client takes "
            "part changes when its budget is spent."
        )


def within_budget(spec: "RunSpec") -> Participation:
    """The law of who takes part, those whose budget is spent left out; raise
    ValueError if the algorithm or the budget does not do for a private problem."""
    if isinstance(spec.problem, Private):
        if isinstance(spec.participation, Timed):
            raise ValueError(
                "a private problem has no clock: replies that come too late are not "
                "counted as taking part, and what they give away would not be either."
            )
        check_one_gradient(spec.algorithm, spec.x0)
    law, problem = spec.participation, spec.problem
    return budgeted(law, problem, spec.algorithm, spec.local_steps)


def budgeted(
    law: Participation, problem: Any, algorithm: Algorithm, local_steps: int
) -> Participation:
    """A law without those whose privacy budget is spent; the law where none is."""
    budget = problem.budget if isinstance(problem, Private) else None
    if budget is None or isinstance(law, Limited):
        return law
    return Limited(law, problem.visits(local_steps, _before(algorithm)))


def accounted(spec: "RunSpec", result: Result, seed: int) -> Result:
    """The result with what each client has given away by then, if that is counted."""
    problem = spec.problem
    if not isinstance(problem, Private) or not problem.noise:
        return result
    at = result.evaluated
    rounds, broken = int(at[-1]), result.diverged_at is not None
    visits, curve = np.zeros(spec.num_clients, np.int64), {}
    due = {*at.tolist()}
    coming = schedule(spec.participation, spec.num_clients, spec.rounds, seed)
    for done in range(rounds + 1):
        if done in due:
            ordered = np.sort(visits)
            curve[done] = ordered[-1], ordered[len(ordered) // 2]
        if done < rounds or broken:  # the round that broke it was computed, too
            visits[next(coming)] += 1
    first = _before(spec.algorithm)
    counts = first + spec.local_steps * np.array([curve[done] for done in at.tolist()])
    whole = problem.epsilons(np.concatenate([counts.ravel(), first + spec.local_steps * visits]))
    found = np.full((len(result.metrics["down"]), 2), np.nan)
    found[at] = whole[: counts.size].reshape(counts.shape)
    own = {EPSILON: whole[counts.size :]}
    if isinstance(spec.participation, Limited):
        own[LEFT] = spec.participation.visits - visits
    return replace(
        result,
        metrics=result.metrics | {EPSILON: found[:, 0], MEDIAN: found[:, 1]},
        clients_metrics=result.clients_metrics | own,
    )


def spent(problem: Any, result: Result) -> str | None:
    """Say who has spent the privacy budget, if somebody has."""
    left = result.clients_metrics.get(LEFT)
    if left is None or left.all():
        return None
    who = np.flatnonzero(left == 0)
    named = ", ".join(map(str, who[:NAMED].tolist())) + ", ..." * (len(who) > NAMED)
    return (
        f"{len(who)} of {len(left)} clients have spent their privacy budget of "
        f"epsilon {problem.budget:g} and took part no more: {named}"
    )


def warn_of_budget(problem: Any, result: Result) -> None:
    """Warn if clients have spent their budget."""
    if words := spent(problem, result):
        warnings.warn(f"{words}.", BudgetWarning, stacklevel=3)


def _before(algorithm: Algorithm) -> int:
    """Gradients that everybody computes before round 0."""
    return int(algorithm.starts_warm)


def check_one_gradient(algorithm: Algorithm, x: Any) -> None:
    """Raise unless a local step asks for one gradient: two of them would carry the
    same noise, and their difference none."""
    asked = 0

    def grad_fn(x: Any, batch: Any) -> Any:
        nonlocal asked
        del batch
        asked += 1
        return tree.zeros(x)

    server, client = algorithm.init(x)
    local = algorithm.pull(client, algorithm.broadcast(server))
    algorithm.step(local, grad_fn, None, Round(0, 1.0, 1, 1, 1))
    if asked != 1:
        raise ValueError(
            "a private problem needs an algorithm that asks for one gradient in a "
            f"local step; {type(algorithm).__name__} asks for {asked}."
        )

"""The Lyapunov function of Theorem 1 along runs, in the text's and the proof's reading.

With X[r] the server's model before round r and z_i the point of client i's stored
gradient, in the indices of the proof: x_{r tau + 1, 0} = X[r], x_{r tau, i} = z_i
before round r.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.algorithms.focus import Focus
from focusfl.algorithms.wrapped import Wrapped
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_positive
from focusfl.participation import Participation
from focusfl.problems import Problem
from focusfl.simulation.reference import states
from focusfl.simulation.spec import RunSpec
from focusfl.theory.constants import check_alike, constants, exact

PerRound = Float[np.ndarray, " rounds_and_one"]


class Lyapunov(NamedTuple):
    """Means over runs; entry r is before round r."""

    square: PerRound  # |X[r] - x*|^2
    spread: PerRound  # B_r: sum over clients of |X[r] - z_i|^2
    as_printed: PerRound  # coefficient 1 - 8 lr tau L N, on |X[r - 1] - z_i|^2
    as_proved: PerRound  # coefficient 1 - 8 lr L^2 N / mu, on B_{r-1}
    bound: PerRound  # (1 - lr mu N / 2)^r times Psi_0, which is |x0 - x*|^2


def lyapunov(
    problem: Problem,
    participation: Participation,
    *,
    rounds: int,
    lr: float,
    local_steps: int = 1,
    warm_start: bool = True,
    x0: Tree | None = None,
    runs: int = 1,
    seed: int = 0,
) -> Lyapunov:
    """Run FOCUS and follow Psi; run k has the seed `seed` + k. Empty rounds step.

    A client not seen yet stores no gradient; it counts with the point it has, x0.

    Args:
        problem: what is minimised; needs L and mu.
        participation: the model of who takes part.
        rounds: to follow it for.
        lr: step size.
        local_steps: gradients per participant and round.
        warm_start: begin as the theorem does.
        x0: where to begin; the problem's if None.
        runs: over which means are taken.
        seed: of the first of them.
    """
    problem = exact(problem)
    known = constants(problem)
    check_alike(known.weight, "Psi")
    if not known.mu:
        raise ValueError(
            f"Psi needs strongly convex f_i, mu > 0; {type(problem).__name__} has mu = {known.mu}."
        )
    check_count("runs", runs)
    check_positive("lr", lr)
    optimum = np.asarray(problem.eval_data["optimum"])
    sums = np.zeros((3, rounds + 1))
    start = problem.x0 if x0 is None else np.asarray(x0, float)
    for k in range(runs):
        before = start
        spec = RunSpec(
            _Watched(Focus(warm_start, memory="last")), problem, participation, rounds,
            [lr], local_steps, start, [seed + k], on_empty="step",
        )  # fmt: skip
        for r, (state, _) in enumerate(states(spec.validated())):
            x, points = state.server.x, np.stack([c.point for c in state.clients])
            sums[:, r] += [
                ((a - b) ** 2).sum() for a, b in [(x, optimum), (x, points), (before, points)]
            ]
            before = x
    square, spread, late = sums / runs
    earlier = np.concatenate([[0.0], spread[:-1]])  # before round 0 all are at x0
    contraction = 1 - lr * known.mu * known.N / 2
    return Lyapunov(
        square,
        spread,
        as_printed=square + (1 - 8 * lr * local_steps * known.L * known.N) * late,
        as_proved=square + (1 - 8 * lr * known.L**2 * known.N / known.mu) * earlier,
        bound=square[0] * contraction ** np.arange(rounds + 1),
    )


class WatchedClient(NamedTuple):
    client: Any
    point: Tree  # where the stored gradient was taken


@dataclass(frozen=True)
class _Watched(Wrapped):
    """FOCUS, with clients that remember where they took their gradient."""

    inner: Focus

    def init(self, params):
        server, client = self.inner.init(params)
        return server, WatchedClient(client, params)

    def pull(self, client, down):
        return self.inner.pull(client.client, down)

    def push(self, client, down, local, rd):
        pushed, up = self.inner.push(client.client, down, local, rd)
        return WatchedClient(pushed, local.x), up

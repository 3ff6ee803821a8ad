"""A step size that one need not tune.

For FOCUS, where the problem states its smoothness: the printed theorem asks for steps
hundreds of times too small. On quadratics FOCUS is linear, and cheap to run in the
eigenbasis of every client: a race between a few candidates on a drawn schedule costs
less than one careful run. For any algorithm on a network: short runs at a few steps,
compared by the training loss that they end with.
"""

import math
import sys
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from jaxtyping import Float

from focusfl.algorithms.focus import Focus
from focusfl.core import Algorithm
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_is
from focusfl.participation import Participation, Replay, schedule
from focusfl.participation.model import Ids, ids_of
from focusfl.problems import LeastSquares, LossProblem, Problem, Quadratic
from focusfl.problems.loss import MeanLoss
from focusfl.problems.quadratic import EIGEN_DIM
from focusfl.problems.weights import mean_of
from focusfl.theory.constants import (
    Constants,
    Quadratics,
    check_rounds,
    constants,
    exact,
)
from focusfl.theory.limits import eigen

TARGET = 1e-6  # relative error at which the race is over
TIE = 1.1  # whoever gets there in so many times the winner's rounds did as well
LOST = 1e3  # so many times the best error: a candidate that will not win any more
SPREAD = 2.0 ** (np.arange(-5, 6) / 2)  # candidates around a centre, as factors
MOVES = 4  # races at most: the next is around a winner that stood at the edge
ROUNDS = 4000
WORK = 10**10  # multiplications and additions that a race may cost
FEWEST = 64  # rounds; if the work does not last for these there is no race
TRIAL_STEPS = 0.025 * 2.0 ** np.arange(7)  # of a network, to begin with: .025 to 1.6
TRIAL_ROUNDS, TRIAL_EVERY = 40, 5
TRIAL_SAMPLES = 1000  # on which runs are compared, as many from each client
SEED = 250320117  # of the schedule: not one that somebody will run by chance


class Choice(NamedTuple):
    lr: float
    why: str  # one sentence


def auto_lr(
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    local_steps: int = 1,
) -> Choice:
    """Choose a stable and fast step size; the same for the same arguments.

    On a problem that states L this is for FOCUS alone and costs less than a run. On a
    network any algorithm gets 7 short runs side by side, of 40 rounds each, and 7 more
    as often as the best step is the smallest or largest, 28 at most. The best is the
    one with the smallest loss on up to 1,000 training samples, the mean over the last
    four evaluations; what the model is evaluated on is not looked at.

    Args:
        algorithm: FOCUS; on a network any.
        problem: what is minimised; a network, or one that states L.
        participation: the law of who takes part.
        local_steps: gradients per participant and round.

    Raises:
        ValueError: If the algorithm is another, or constants are not known.
    """
    if has_trials(problem):
        check_count("local_steps", local_steps)
        participation.check(problem.num_clients)
        return _trial(algorithm, problem, participation, local_steps)
    if not isinstance(algorithm, Focus):
        raise ValueError(
            f"auto_lr knows the dynamics of Focus only; got {algorithm!r}. "
            "Use sweep() with a few lrs for other algorithms."
        )
    check_count("local_steps", local_steps)
    check_is("problem", problem, Problem)
    check_is("participation", participation, Participation)
    check_rounds(participation)
    participation.check(problem.num_clients)
    problem = exact(problem)
    known, p = constants(problem), participation.marginals(problem.num_clients).p
    if not np.any(p > 0):
        raise ValueError(
            'lr="auto" needs rounds in which somebody takes part; under '
            f"{type(participation).__name__} nobody ever does. Give lr as a number."
        )
    guess = closed_form(known, p, problem.weights)
    if isinstance(problem, Quadratic | LeastSquares):
        rounds = _affordable(problem, float(p.sum()))
        if rounds >= FEWEST and p.min() > 0:  # else the optimum is out of reach
            course = _course(algorithm, problem, participation, rounds, local_steps)
            if any(map(len, course.sets)):
                return _search(course, guess.lr)
    return guess


def has_trials(problem: Problem) -> TypeGuard[LossProblem]:
    """Whether a step is chosen by short runs: a network that jax can compute."""
    return isinstance(problem, LossProblem) and type(problem.mean_loss) is MeanLoss


def _trial(
    algorithm: Algorithm,
    problem: LossProblem,
    participation: Participation,
    local_steps: int,
) -> Choice:
    """Choose the step with the smallest training loss of several short runs."""
    from focusfl.simulation.api import sweep

    judged = replace(
        problem,
        mean_loss=replace(problem.mean_loss, metrics_fn=None),
        evaluated_on=_training_samples(problem),
    )
    losses: dict[float, float] = {}
    lrs = TRIAL_STEPS
    for _ in range(MOVES):
        if sys.stderr.isatty():
            print(
                f'lr="auto": {len(lrs)} runs of {TRIAL_ROUNDS} rounds, at steps from '
                f"{lrs[0]:.3g} to {lrs[-1]:.3g}",
                file=sys.stderr,
            )
        for run in sweep(
            algorithm, judged, participation, lrs=lrs.tolist(), rounds=TRIAL_ROUNDS,
            local_steps=local_steps, eval_every=TRIAL_EVERY, seed=SEED, on_divergence="ignore",
        ):  # fmt: skip
            ends = run.metrics["loss"][run.evaluated[-4:]]
            losses[run.lr] = math.inf if run.diverged_at is not None else ends.mean()
        best = min(losses, key=losses.__getitem__)
        if losses[best] == math.inf or best == min(losses):
            lrs = min(losses) / 2.0 ** np.arange(len(lrs), 0, -1)
        elif best == max(losses):
            lrs = max(losses) * 2.0 ** np.arange(1, len(lrs) + 1)
        else:
            break
    if losses[best] == math.inf:
        raise ValueError(
            f'lr="auto" found no step at which {algorithm!r} lasts for {TRIAL_ROUNDS} '
            f"rounds, down to {min(losses):.3g}. Look at the scale of the data."
        )
    why = (
        f"the smallest training loss, {losses[best]:.3g}, of {len(losses)} steps from "
        f"{min(losses):.3g} to {max(losses):.3g} after {TRIAL_ROUNDS} rounds each."
    )
    return Choice(best, why)


def _training_samples(problem: LossProblem) -> Tree:
    """As many samples of each client, evenly over its own; some twice if it has few."""
    import jax

    many = max(1, TRIAL_SAMPLES // problem.num_clients)
    places = np.arange(many) * problem.lengths[:, None] // many
    who = np.arange(problem.num_clients)[:, None]
    return jax.tree.map(
        lambda leaf: leaf[who, places].reshape(-1, *leaf.shape[2:]), problem.samples
    )


def closed_form(
    known: Constants,
    p: Float[np.ndarray, " clients"],
    weights: Float[np.ndarray, " clients"] | None = None,
) -> Choice:
    """Choose from the constants and the chances to take part alone.

    A round moves x by lr N times a mean of gradients: no step past 1/(N L_F). Those of
    the rarest client are 1/min p rounds old, and past min p / L they feed back. And
    there is no use in outrunning the memory: lr N mu_F > mean p / 2 is for nothing.
    Without a mu_F the first bound is cautious and takes mean p for it.

    With weights N is their sum, and p_i / w_i and the weighted mean stand for p: what a
    client feeds back is as much as it weighs.
    """
    w = np.ones_like(p) if weights is None else np.asarray(weights, float)
    there = p > 0  # who never comes is not old
    least, mean = float((p / w)[there].min()), float(mean_of(weights, p))
    smooth, outrun = 1 / (known.total * known.L_F), math.inf
    if known.mu_F:
        outrun = mean / (2 * known.total * known.mu_F)
        form = "min(1/(N L_F), min p/L, mean p/(2 N mu_F))"
    else:
        smooth *= mean
        form = "min(mean p/(N L_F), min p/L)"
    why = (
        f"the closed form {form} with N = {known.total}, L_F = {known.L_F:.3g}, L = "
        f"{known.L:.3g}, min p = {least:.3g}, mean p = {mean:.3g}"
    )
    if weights is not None:
        why += ", N and p by weight"
    why += f", mu_F = {known.mu_F:.3g}." if known.mu_F else "."
    return Choice(min(smooth, least / known.L, outrun), why)


class Course(NamedTuple):
    """What a race is run on: the problem in every client's eigenbasis, and the sets."""

    values: Float[np.ndarray, "clients dim"]
    enter: Float[np.ndarray, "clients dim dim"]  # model -> eigenbasis
    leave: Float[np.ndarray, "clients dim dim"]  # and times the client's weight
    h: Float[np.ndarray, "clients dim"]
    optimum: Float[np.ndarray, " dim"]
    unit: float  # what errors are relative to
    x0: Float[np.ndarray, " dim"]
    sets: list[Ids]
    local_steps: int
    algorithm: Focus

    def gradient(self, ids: Any, x: Float[np.ndarray, "dim runs"]) -> np.ndarray:
        """The gradients of some clients, each in its basis."""
        inside = self.enter[ids] @ x
        return self.values[ids][..., None] * inside - self.h[ids][..., None]


def _course(
    algorithm: Focus,
    problem: Quadratics,
    participation: Participation,
    rounds: int,
    local_steps: int,
) -> Course:
    values, vectors, h = eigen(problem)
    unit, x0 = float(problem.eval_data["unit"]), np.asarray(problem.x0)
    if np.linalg.norm(x0 - problem.optimum) <= TARGET * unit:
        x0 = x0 + unit  # a run that begins at its end shows nothing
    leave = vectors
    if problem.weights is not None:
        leave = np.asarray(problem.weights)[:, None, None] * vectors
    return Course(
        values, vectors.swapaxes(1, 2), leave, h,
        problem.optimum, unit, x0,
        _sets(participation, problem.num_clients, rounds), local_steps, algorithm,
    )  # fmt: skip


def _sets(participation: Participation, num_clients: int, rounds: int) -> list[Ids]:
    if isinstance(participation, Replay):  # over and over: a recording may be short
        recorded = ids_of(participation.masks)
        return [recorded[r % len(recorded)] for r in range(rounds)]
    return list(schedule(participation, num_clients, rounds, SEED))


class Finish(NamedTuple):
    rounds: Float[np.ndarray, " runs"]  # until the target; inf if it was not reached
    error: Float[np.ndarray, " runs"]  # the last one seen; inf for who fell behind


def _race(course: Course, lrs: Float[np.ndarray, " runs"]) -> Finish:
    """Run FOCUS at several step sizes until some have won and the rest has lost.

    In its basis a participant's local steps are one product per coordinate: the stored
    t-th gradient is as far from the stored one as the first times (1 - lr values)^t,
    t from 0. What is stored next is the last of these, or their mean.
    """
    rounds, error = np.full(len(lrs), np.inf), np.full(len(lrs), np.inf)
    runs = np.arange(len(lrs))  # who is still running
    damp = _left_over(course, lrs)
    x = np.tile(course.x0[:, None], len(lrs))
    g = np.zeros((*course.values.shape, len(lrs)))
    if course.algorithm.warm_start:
        g = course.gradient(slice(None), x)
    y = (course.leave @ g).sum(0)
    for done, ids in enumerate(course.sets, start=1):
        if not len(ids):
            continue
        move = damp[ids] * (course.gradient(ids, x) - g[ids])
        g[ids] += move
        y += np.tensordot(course.leave[ids], move, ([0, 2], [0, 1]))
        x -= lrs[runs] * y
        now = np.linalg.norm(x - course.optimum[:, None], axis=0) / course.unit
        there = runs[now <= TARGET]
        rounds[there] = np.minimum(rounds[there], done)
        if done >= TIE * rounds.min():
            break
        keep = now <= LOST * now.min()
        if not keep.all():
            runs, now, x, y = runs[keep], now[keep], x[:, keep], y[:, keep]
            g, damp = g[..., keep], damp[..., keep]
    error[runs] = now
    return Finish(rounds, error)


def _left_over(
    course: Course, lrs: Float[np.ndarray, " runs"]
) -> Float[np.ndarray, "clients dim runs"]:
    """How far the stored gradient moves in a visit, beside how far the first is off."""
    shrink = 1 - lrs * course.values[..., None]
    if course.algorithm.memory == "last":
        return shrink ** (course.local_steps - 1)
    return sum(shrink**t for t in range(course.local_steps)) / course.local_steps


def _search(course: Course, centre: float) -> Choice:
    for _ in range(MOVES):
        lrs = centre * SPREAD
        finish = _race(course, lrs)
        won = np.isfinite(finish.rounds)
        best = won if won.any() else finish.error == finish.error.min()
        lr = float(np.exp(np.log(lrs[best]).mean()))  # in the middle of those that tie
        if not (best[0] or best[-1]):
            break
        centre = lr
    end = (
        f"reached {TARGET:.0e} first, after {int(finish.rounds.min())} rounds"
        if won.any()
        else f"had the smallest error after {len(course.sets)} rounds"
    ).replace("e-0", "e-")
    why = (
        f"the fastest of {len(lrs)} steps from {lrs[0]:.3g} to {lrs[-1]:.3g}: it {end} "
        "on a schedule drawn from this participation."
    )
    return Choice(lr, why)


def _affordable(problem: Quadratics, active: float) -> int:
    """Rounds of a race that WORK pays for."""
    dim = len(problem.mean[1])
    if dim > EIGEN_DIM:
        return 0
    return int(min(ROUNDS, WORK / (4 * active * dim**2 * len(SPREAD))))

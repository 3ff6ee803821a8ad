"""A step size that need not be tuned: `auto_lr`, or `lr="auto"`.

The printed theorem asks for steps hundreds of times too small. So FOCUS on a quadratic, and
any algorithm on a network, is run for a while at the steps of a geometric grid, and the grid
is extended while its best step is at an edge. For other problems that state their smoothness,
FOCUS has a closed form.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
from jaxtyping import Float

from focusfl.algorithms.focus import Focus
from focusfl.core import Algorithm
from focusfl.core.bracket import Scores, best_step, bracket
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_is
from focusfl.participation import Participation, Replay
from focusfl.problems import LeastSquares, LossProblem, Problem, Quadratic
from focusfl.problems.loss import MeanLoss
from focusfl.problems.problem import mean_of
from focusfl.problems.quadratic import EIGEN_DIM
from focusfl.theory.constants import Constants, Quadratics, check_rounds, constants, exact

if TYPE_CHECKING:
    from focusfl.core.result import Result
    from focusfl.simulation.callbacks import Progress

SEED = 250320117  # of the runs compared: not one that somebody will use by chance
MAX_GRIDS = 4  # the first, and three extensions

# Runs on a quadratic, around the closed form.
TARGET = 1e-6  # relative error that the best step gets to first
TIE = 1.1  # a step that needs so many times the best step's rounds is as good
FACTORS = 2.0 ** (np.arange(-5, 6) / 2)
ROUNDS, MIN_ROUNDS = 4000, 64
WORK = 10**10  # multiplications and additions that the runs of one grid may cost

# Runs on a network.
NETWORK_STEPS = 0.025 * 2.0 ** np.arange(7)  # .025 to 1.6
NETWORK_ROUNDS, NETWORK_EVAL_EVERY = 40, 5
NETWORK_SAMPLES = 1000  # on which runs are compared, as many from each client


class Choice(NamedTuple):
    lr: float
    why: str  # one sentence


def auto_lr(
    algorithm: Algorithm, problem: Problem, participation: Participation, local_steps: int = 1
) -> Choice:
    """Choose a stable and fast step size; the same for the same arguments.

    On a problem that states its smoothness L this is for FOCUS alone. On a quadratic it is
    the step that gets to a relative error of 1e-6 in the fewest rounds, of a grid around
    `closed_form`; steps that need up to a tenth more rounds count as ties, whose geometric
    mean is taken. On other such problems it is `closed_form` itself.

    On a network any algorithm gets 7 short runs side by side, of 40 rounds each, and 7 more
    as often as the best step is the smallest or largest, 28 at most. The best is the
    one with the smallest loss on up to 1,000 training samples, the mean over the last
    four evaluations; what the model is evaluated on is not looked at.

    Args:
        algorithm: FOCUS; on a network any.
        problem: what is minimised; a network, or one that states L.
        participation: the model of who takes part.
        local_steps: gradients per participant and round.

    Raises:
        ValueError: If the algorithm is another, or constants are not known.
    """
    check_count("local_steps", local_steps)
    if has_trials(problem):
        participation.check(problem.num_clients)
        return _for_network(algorithm, problem, participation, local_steps)
    if not isinstance(algorithm, Focus):
        raise ValueError(
            f"auto_lr knows the dynamics of Focus only; got {algorithm!r}. "
            "Use sweep() with a few lrs for other algorithms."
        )
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
    if isinstance(problem, Quadratic | LeastSquares) and p.min() > 0:  # else x* is out of reach
        rounds = _affordable(problem, float(p.sum()))
        if rounds >= MIN_ROUNDS:
            chosen = _for_quadratic(
                algorithm, problem, participation, local_steps, guess.lr, rounds
            )
            return chosen or guess
    return guess


def has_trials(problem: Problem) -> TypeGuard[LossProblem]:
    """Whether a step is chosen by short runs: a network that jax can compute."""
    return isinstance(problem, LossProblem) and type(problem.mean_loss) is MeanLoss


def _for_quadratic(
    algorithm: Focus,
    problem: Quadratics,
    participation: Participation,
    local_steps: int,
    centre: float,
    rounds: int,
) -> Choice | None:
    """Choose the step that gets to the target first; None if nobody is ever drawn."""
    x0, unit = np.asarray(problem.x0), float(problem.eval_data["unit"])
    if np.linalg.norm(x0 - problem.optimum) <= TARGET * unit:
        x0 = x0 + unit  # a run that begins at its end shows nothing
    if isinstance(participation, Replay):  # over and over: a recording may be short
        masks = participation.masks
        participation = Replay(np.tile(masks, (-(-rounds // len(masks)), 1)))
    steps_taken = 0.0

    def score(lrs: Sequence[float]) -> Scores:
        """Score each step by its rounds to the target, then by its error in the end."""
        nonlocal steps_taken
        runs = _runs(
            algorithm, problem, participation, lrs=list(lrs), rounds=rounds, x0=x0,
            local_steps=local_steps, callbacks=_until_ties_are_known(),
        )  # fmt: skip
        steps_taken += sum(run.metrics["gradients"].sum() for run in runs)
        return {lr: _rounds_and_error(run) for lr, run in zip(lrs, runs, strict=True)}

    grid = (centre * FACTORS).tolist()
    scores = bracket(score, grid, max_steps=MAX_GRIDS * len(grid))
    if not steps_taken:
        return None
    won, _ = scores[best_step(scores)]
    if won < math.inf:
        tied = [lr for lr, (needed, _) in scores.items() if needed <= math.ceil(TIE * won)]
        end = f"reached {TARGET:.0e} first, after {won} rounds".replace("e-0", "e-")
    else:
        tied = [best_step(scores)]
        end = f"had the smallest error after {rounds} rounds"
    why = (
        f"the fastest of {len(scores)} steps from {min(scores):.3g} to {max(scores):.3g}: it "
        f"{end} on a schedule drawn from this participation."
    )
    return Choice(float(np.exp(np.log(tied).mean())), why)


def _until_ties_are_known() -> "Progress":
    """Make what ends runs once those that tie with the first at the target are known."""
    won = math.inf

    def enough(done: int, metrics: Mapping[str, Any]) -> bool:
        nonlocal won
        if np.min(metrics["distance"]) <= TARGET:
            won = min(won, done)  # at most a chunk of rounds later than it got there
        return done >= TIE * won + 1

    return enough


def _rounds_and_error(run: "Result") -> tuple[int | float, float]:
    """Give the rounds to the target, infinite if it was not reached, and the last error."""
    if run.diverged_at is not None:
        return math.inf, math.inf
    distance = run.metrics["distance"]
    reached = np.flatnonzero(distance <= TARGET)
    return (int(reached[0]) if len(reached) else math.inf), float(distance[-1])


def _affordable(problem: Quadratics, active: float) -> int:
    """Give the rounds of a grid of runs that WORK pays for."""
    dim = len(problem.mean[1])
    if dim > EIGEN_DIM:
        return 0
    return int(min(ROUNDS, WORK / (4 * active * dim**2 * len(FACTORS))))


def _for_network(
    algorithm: Algorithm, problem: LossProblem, participation: Participation, local_steps: int
) -> Choice:
    """Choose the step with the smallest training loss after several short runs."""
    judged = replace(
        problem,
        mean_loss=replace(problem.mean_loss, metrics_fn=None),
        evaluated_on=_training_samples(problem),
    )

    def score(lrs: Sequence[float]) -> Scores:
        """Score each step by the mean of the last four losses."""
        if sys.stderr.isatty():
            print(
                f'lr="auto": {len(lrs)} runs of {NETWORK_ROUNDS} rounds, at steps from '
                f"{lrs[0]:.3g} to {lrs[-1]:.3g}",
                file=sys.stderr,
            )
        runs = _runs(
            algorithm, judged, participation, lrs=list(lrs), rounds=NETWORK_ROUNDS,
            local_steps=local_steps, eval_every=NETWORK_EVAL_EVERY,
        )  # fmt: skip
        return {
            lr: math.inf
            if run.diverged_at is not None
            else float(run.metrics["loss"][run.evaluated[-4:]].mean())
            for lr, run in zip(lrs, runs, strict=True)
        }

    grid = NETWORK_STEPS.tolist()
    losses = bracket(score, grid, max_steps=MAX_GRIDS * len(grid))
    best = best_step(losses)
    if losses[best] == math.inf:
        raise ValueError(
            f'lr="auto" found no step at which {algorithm!r} lasts for {NETWORK_ROUNDS} '
            f"rounds, down to {min(losses):.3g}. Look at the scale of the data."
        )
    why = (
        f"the smallest training loss, {losses[best]:.3g}, of {len(losses)} steps from "
        f"{min(losses):.3g} to {max(losses):.3g} after {NETWORK_ROUNDS} rounds each."
    )
    return Choice(best, why)


def _training_samples(problem: LossProblem) -> Tree:
    """Take as many samples of each client, evenly over its own; some twice if it has few."""
    import jax

    many = max(1, NETWORK_SAMPLES // problem.num_clients)
    places = np.arange(many) * problem.lengths[:, None] // many
    clients = np.arange(problem.num_clients)[:, None]
    return jax.tree.map(
        lambda leaf: leaf[clients, places].reshape(-1, *leaf.shape[2:]), problem.samples
    )


def _runs(*what: Any, **how: Any) -> "list[Result]":
    """Run at several steps, side by side; what is too large is no reason to warn."""
    # Imported late: `simulation` imports this to resolve lr="auto".
    from focusfl.simulation.api import sweep
    from focusfl.simulation.spec import Options

    return sweep(*what, **how, seed=SEED, options=Options(on_divergence="ignore"))


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

"""What theory predicts of one run: its rate, where it ends, and its noise floor."""

from typing import NamedTuple

import numpy as np

from focusfl.algorithms import MIFA, FedAU, FedAvg, FedVARP, Focus, ProxSkip, Scaffnew
from focusfl.algorithms.wrapped import innermost
from focusfl.core import Algorithm
from focusfl.core.validation import check_positive
from focusfl.participation import Cyclic, Participation
from focusfl.problems import LeastSquares, Problem, Quadratic
from focusfl.theory import limits
from focusfl.theory.constants import exact

MAX_DIM = 2000  # dimension up to which a fixed point is solved for
SMALL_STEP = 0.5  # step times smoothness times the mean absence of the rarest client


class Prediction(NamedTuple):
    """Each None where theory has no number."""

    rate: float | None = None  # factor per round of |x - x*|, where steps are small
    bias: float | None = None  # |limit - x*| / |x*|, of the mean if clients are drawn
    floor: float | None = None  # sqrt(E|x - x*|^2) / |x*| under noise


def predict(
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    *,
    lr: float,
    local_steps: int,
    noise: float = 0.0,
) -> Prediction:
    """Predict how fast a run goes and where it ends, as far as that is known.

    Args:
        algorithm: the one that runs.
        problem: what is minimised.
        participation: the model of who takes part.
        lr: step size, a number: nothing is known of schedules.
        local_steps: gradients per participant and round.
        noise: standard deviation in every entry of every gradient.
    """
    check_positive("lr", lr)
    if participation.asynchronous:  # and a client's model as old as its reply
        return Prediction()
    participation = participation.with_work(algorithm, problem.x0, local_steps)
    plain = exact(problem)
    focus = algorithm if type(algorithm) is Focus else None
    rate = _rate(plain, participation, lr) if focus else None
    safe = rests_at_optimum(algorithm, plain, participation, lr, local_steps)
    bias = 0.0 if safe else None
    if not isinstance(plain, Quadratic | LeastSquares) or plain.x0.size > MAX_DIM:
        return Prediction(rate, bias)
    unit, optimum = float(plain.eval_data["unit"]), plain.optimum
    rarest = participation.marginals(plain.num_clients).p.min()
    if noise and focus and rarest > 0:
        averaged = local_steps if focus.memory == "mean" else 1
        square = limits.noise_floor(plain, participation, lr, noise, averaged)
        return Prediction(rate, bias, float(np.sqrt(square)) / unit)
    if bias == 0:
        return Prediction(rate, bias)
    if isinstance(algorithm, FedAvg):
        if limits.mean_shares(plain, participation) is None:
            return Prediction(rate)
        end = limits.fedavg_limit(plain, participation, lr, local_steps)
    elif isinstance(algorithm, FedAU):
        end = limits.fedau_limit(plain, participation, lr, local_steps, algorithm.cutoff)
    elif isinstance(algorithm, MIFA | FedVARP):
        end = limits.fedavg_fixed_point(plain, lr, local_steps)
    else:
        return Prediction(rate)
    return Prediction(rate, float(np.linalg.norm(end - optimum)) / unit)


def rests_at_optimum(
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    lr: float,
    local_steps: int,
) -> bool:
    """Say whether a run at this step can come to rest at a minimiser of F alone.

    Needs convex f_i of known smoothness L, so that where the gradient vanishes is one,
    and everybody now and then. Scaffnew and ProxSkip also need clients who meet: blocks
    that never do solve their own problems.
    """
    smooth, convex = (getattr(problem, name, None) for name in ("L", "mu"))
    if not smooth or convex is None:
        return False
    inner = innermost(algorithm)
    if isinstance(inner, Scaffnew | ProxSkip) and isinstance(participation, Cyclic):
        return False
    everybody = participation.marginals(problem.num_clients).p.min() > 0
    return everybody and lr < algorithm.max_exact_lr(smooth, local_steps)


def _rate(problem: Problem, participation: Participation, lr: float) -> float | None:
    """Give the rate of gradient descent on F, which FOCUS is at steps small beside delays."""
    strong, smooth = (getattr(problem, name, None) for name in ("mu_F", "L_F"))
    if not strong or not smooth:
        return None
    rarest = participation.marginals(problem.num_clients).p.min()
    if not rarest:  # never there: F is another one
        return None
    longest = 1 / rarest
    step = lr * problem.total_weight
    return float(1 - step * strong) if step * smooth * longest <= SMALL_STEP else None

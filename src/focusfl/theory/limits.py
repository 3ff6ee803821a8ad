"""Where algorithms with a constant step end: fixed points, biases, noise floors.

Closed forms on quadratics, f_i(x) = x·H_i x / 2 - h_i·x. docs/theory.md derives them, and
tests/test_fixed_points.py holds runs to them.
"""

import numpy as np
from jaxtyping import Float

from focusfl.core.validation import check_count, check_positive
from focusfl.participation import Bernoulli, Participation
from focusfl.participation.model import PerClient
from focusfl.problems import LeastSquares, Problem
from focusfl.theory.constants import Quadratics, check_quadratic, check_rounds

TINY = 1e-18  # what is left out of an integral, at most

Vector = Float[np.ndarray, " dim"]


def fedavg_fixed_point(
    problem: Problem, lr: float, local_steps: int, weights: list | PerClient | None = None
) -> Vector:
    """Solve x = sum of w_i GD_i(x) for x, where GD_i is local steps on f_i.

    With everybody there FedAvg ends here; MIFA and FedVARP do whoever takes part.

    Args:
        problem: quadratic.
        lr: step size.
        local_steps: gradients per participant and round.
        weights: of clients; as in F, 1/N each or its own, if None.
    """
    problem = check_quadratic(problem, "the fixed point")
    w = _weights(weights, problem)
    values, vectors, h = eigen(problem)
    check_positive("lr", lr)
    check_count("local_steps", local_steps)
    # The gradient that local steps add up to is P_i (H_i x - h_i), P_i in this basis:
    P = lr * sum((1 - lr * values) ** j for j in range(local_steps))
    left = np.einsum("n,nij,nj,nkj->ik", w, vectors, P * values, vectors)
    right = np.einsum("n,nij,nj->i", w, vectors, P * h)
    return np.linalg.solve(left, right)


def fedavg_limit(
    problem: Problem, participation: Participation, lr: float, local_steps: int
) -> Vector:
    """Give the mean of FedAvg's stationary iterates: the fixed point for weights q / sum q.

    Exact where rounds are independent; single iterates scatter around it.

    Args:
        problem: quadratic.
        participation: the model of who takes part.
        lr: step size.
        local_steps: gradients per participant and round.
    """
    q = mean_shares(problem, participation)
    if q is None:
        raise ValueError(
            "the limit of FedAvg with weights is known where everybody takes part or "
            f"tosses a coin; got {type(participation).__name__}. Use Full or Bernoulli."
        )
    return fedavg_fixed_point(problem, lr, local_steps, q / q.sum())


def mean_shares(problem: Problem, participation: Participation) -> PerClient | None:
    """Give E[w_i 1{i in S} / sum of w over S], which is q where all weights are alike; None
    where there is no formula for it.

    Of coins, w_i p_i times the integral over s > 0 of exp(-s w_i) and the product over
    the others of 1 - p_j + p_j exp(-s w_j). In t = log s the integrand is analytic and
    dies out at both ends: sums over equal steps converge faster than any power.
    """
    check_rounds(participation)
    known, weights = participation.marginals(problem.num_clients), problem.weights
    if weights is None:
        return known.q
    w = np.asarray(weights, float)
    if (known.p == 1).all():
        return w / w.sum()
    if not isinstance(participation, Bernoulli):
        return None
    step, out = 0.05, np.zeros(len(w))
    with np.errstate(divide="ignore"):  # of 1 - p = 0
        absent, present = np.log1p(-known.p), np.log(known.p)
    for t in np.arange(np.log(TINY / w.sum()), np.log(-np.log(TINY) / w.min()), step):
        s = np.exp(t)
        logs = np.logaddexp(absent, present - s * w)
        out += step * s * np.exp(-s * w + logs.sum() - logs)
    return w * known.p * out


def fedau_weights(participation: Participation, num_clients: int, cutoff: int = 50) -> PerClient:
    """Give the weights FedAU ends up with, summing to 1: 1 - (1 - p)^cutoff, normalised.

    Intervals between visits are cut at `cutoff`, so that their mean is this over p.
    """
    check_count("cutoff", cutoff)
    check_rounds(participation)
    p = participation.marginals(num_clients).p
    w = 1 - (1 - p) ** cutoff
    return w / w.sum()


def fedau_limit(
    problem: Problem, participation: Participation, lr: float, local_steps: int, cutoff: int = 50
) -> Vector:
    """Give the mean of FedAU's stationary iterates, for clients that toss coins.

    Args:
        problem: quadratic.
        participation: the model of who takes part.
        lr: step size.
        local_steps: gradients per participant and round.
        cutoff: of FedAU.
    """
    w = fedau_weights(participation, problem.num_clients, cutoff)
    if problem.weights is not None:
        w = w * np.asarray(problem.weights)
    return fedavg_fixed_point(problem, lr, local_steps, w)


def weighted_optimum(problem: Problem, weights: list | PerClient | None) -> Vector:
    """Give the minimiser of the sum of w_i f_i; x* if `weights` is None."""
    problem = check_quadratic(problem, "the weighted optimum")
    w = _weights(weights, problem)
    H, h = hessians(problem)
    return np.linalg.solve(np.tensordot(w, H, 1), w @ h)


def first_order_bias(
    problem: Problem, lr: float, local_steps: int, weights: list | PerClient | None = None
) -> Vector:
    """Give the fixed point of FedAvg minus the weighted optimum, to first order in lr.

    It vanishes iff there is one local step, or the H_i are equal, or the f_i share
    their minimiser.

    Args:
        problem: quadratic.
        lr: step size.
        local_steps: gradients per participant and round.
        weights: of clients; as in F, 1/N each or its own, if None.
    """
    problem = check_quadratic(problem, "the bias")
    w = _weights(weights, problem)
    H, h = hessians(problem)
    grads = H @ weighted_optimum(problem, w) - h
    drift = np.einsum("n,nij,nj->i", w, H, grads)
    return lr * (local_steps - 1) / 2 * np.linalg.solve(np.tensordot(w, H, 1), drift)


def noise_floor(
    problem: Problem, participation: Participation, lr: float, scale: float, averaged: int = 1
) -> float:
    """Give E|x - x*|^2 at which FOCUS stalls under N(0, scale^2 I) on every gradient.

    To first order in lr. A noisy gradient is used again until its client returns, which
    is the factor 2/p - 1.

    Args:
        problem: quadratic.
        participation: the model of who takes part.
        lr: step size.
        scale: standard deviation in every entry of every gradient.
        averaged: how many gradients a stored one is the mean of: 1 for the last, the
            local steps with memory="mean".
    """
    problem = check_quadratic(problem, "the noise floor")
    check_positive("lr", lr)
    check_count("averaged", averaged)
    check_rounds(participation)
    p = participation.marginals(problem.num_clients).p
    trace = np.trace(np.linalg.inv(problem.mean[0]))
    again = np.mean(2 / p - 1)
    if problem.weights is not None:  # noise has a variance: weights come in squared
        w = np.asarray(problem.weights)
        again = (w**2 * (2 / p - 1)).sum() / w.sum()
    return float(lr * scale**2 / averaged / 2 * trace * again)


def hessians(
    problem: Quadratics,
) -> tuple[Float[np.ndarray, "clients dim dim"], Float[np.ndarray, "clients dim"]]:
    """Give H_i and h_i of every client, whatever the problem is stored as."""
    if isinstance(problem, LeastSquares) and problem.through_rows:
        At = problem.A.swapaxes(1, 2)
        ridge = 2 * problem.penalty * np.eye(problem.A.shape[2])
        return 2 * At @ problem.A + ridge, 2 * (At @ problem.b[..., None])[..., 0]
    return problem.data["H"], problem.data["h"]


def eigen(
    problem: Quadratics,
) -> tuple[
    Float[np.ndarray, "clients dim"],
    Float[np.ndarray, "clients dim dim"],
    Float[np.ndarray, "clients dim"],
]:
    """Give every H_i as eigenvalues and vectors (in columns), and h_i in that basis."""
    H, h = hessians(problem)
    values, vectors = np.linalg.eigh(H)
    return values, vectors, np.einsum("nij,ni->nj", vectors, h)


def _weights(weights: list | PerClient | None, problem: Problem) -> PerClient:
    num_clients = problem.num_clients
    if weights is None and problem.weights is None:
        return np.full(num_clients, 1 / num_clients)
    w = np.asarray(problem.weights if weights is None else weights, float)
    if w.shape != (num_clients,) or not np.all(w >= 0) or not w.sum() > 0:
        raise ValueError(
            f"weights must be {num_clients} numbers, none negative, not all 0; "
            f"got {np.array2string(w, threshold=8)}."
        )
    return w / w.sum()

"""Decentralized methods in matrix form: node i holds row i, and there is no server.

W is doubly stochastic (and symmetric, for what is proven of EXTRA, exact diffusion and
NIDS), R row-stochastic, C column-stochastic; `graphs` makes them. Everybody takes part
in every iteration.

    grads = gradients(problem)
    Z = run("extra", grads, Z0, lr=0.05, iterations=500, W=metropolis(graph))
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.core.validation import check_count, unknown
from focusfl.mixing.matrices import (
    Gradients,
    Mixing,
    Stacked,
    check_column_stochastic,
    check_doubly_stochastic,
    check_row_stochastic,
    coefficients,
    gradients,
)
from focusfl.problems import Problem

__all__ = [
    "METHODS", "Method", "State", "dgd_fixed_point", "diffusion_fixed_point",
    "gradients", "run", "states",
]  # fmt: skip

Trajectory = Float[np.ndarray, "iterations_and_one nodes dim"]


class State(NamedTuple):
    """Where a method stands after an iteration."""

    Z: Stacked  # the model of each node
    Y: Stacked | None = None  # the tracked gradient or the dual, if there is one


def _atc(W: Mixing, Z: Stacked, move: Stacked) -> Stacked:
    """Adapt, then combine."""
    return W @ (Z + move)


def _cta(W: Mixing, Z: Stacked, move: Stacked) -> Stacked:
    """Combine, then adapt."""
    return W @ Z + move


def _descent(grads, Z, lr, W, *, form) -> Iterator[State]:
    """Z <- Z - lr grad(Z), mixed by W. Stops short of x*, by O(lr).

    DGD: Nedic and Ozdaglar 2009. Diffusion: Chen and Sayed 2012.
    """
    while True:
        yield State(Z)
        Z = form(W, Z, -lr * grads(Z))


def _local_sgd(grads, Z, lr, W, local_steps) -> Iterator[State]:
    """Z <- W_k (Z - lr grad(Z)); W_k = I but at every local_steps-th iteration.

    Koloskova et al. 2020, with everybody training.
    """
    for W_r in cycle(W if W.ndim == 3 else [W]):
        for _ in range(local_steps):
            yield State(Z)
            Z = Z - lr * grads(Z)
        Z = W_r @ Z


def _disagreement(W: Mixing, Z: Stacked) -> Stacked:
    """(I - W) Z / 2, which is W~ Z - W Z and Z - W~ Z with W~ = (I + W) / 2.

    The mean changes nothing but rounding: where rows of W sum to 1 + 1e-16, a little of
    it would go into the dual at every iteration and stay (1e-10 from x* in the end).
    """
    Z = Z - Z.mean(0)
    return (Z - W @ Z) / 2


# Two-step recursions, written with the dual Y that they imply; its rows sum to zero.


def _extra(grads, Z, lr, W) -> Iterator[State]:
    """Z'' = (I + W) Z' - W~ Z - lr (grad(Z') - grad(Z)), from Z' = W Z - lr grad(Z).

    Shi, Ling, Wu and Yin 2015.
    """
    Y = np.zeros_like(Z)
    while True:
        yield State(Z, Y)
        Z, Y = W @ Z - lr * grads(Z) - Y, Y + _disagreement(W, Z)


def _exact_diffusion(grads, Z, lr, W) -> Iterator[State]:
    """Z'' = W~ (2 Z' - Z - lr (grad(Z') - grad(Z))), from Z' = W~ (Z - lr grad(Z)).

    Yuan, Ying, Zhao and Sayed 2018.
    """
    Y = np.zeros_like(Z)
    while True:
        yield State(Z, Y)
        adapted = Z - lr * grads(Z) - Y
        apart = _disagreement(W, adapted)
        Z, Y = adapted - apart, Y + apart


def _nids(grads, Z, lr, W) -> Iterator[State]:
    """The recursion of exact diffusion, from Z' = Z - lr grad(Z).

    Li, Shi and Yan 2019.
    """
    yield State(Z, np.zeros_like(Z))
    yield from _exact_diffusion(grads, Z - lr * grads(Z), lr, W)


def _tracking(grads, Z, lr, R, C, *, form_z, form_y) -> Iterator[State]:
    """Z <- Z - lr Y, mixed by R; Y <- Y + change of grad(Z), mixed by C.

    Push-pull: Pu, Shi, Xu and Nedic 2021. AB: Xin and Khan 2018. With R = C = W,
    gradient tracking: Xu et al. 2015; combining first, DIGing: Nedic et al. 2017.
    """
    Y = now = grads(Z)
    while True:
        yield State(Z, Y)
        Z = form_z(R, Z, -lr * Y)
        before, now = now, grads(Z)
        Y = form_y(C, Y, now - before)


@dataclass(frozen=True)
class Method:
    """A recursion, and what is known about it."""

    recursion: Callable[..., Iterator[State]]
    takes: tuple[str, ...]  # what it mixes with, in the order of its arguments
    vectors: int  # sent to each neighbour, each time it mixes
    exact: bool = True  # whether it reaches x* with a constant lr


_tracking_atc = partial(_tracking, form_z=_atc, form_y=_atc)
_tracking_cta = partial(_tracking, form_z=_cta, form_y=_cta)
_tracking_semi = partial(_tracking, form_z=_atc, form_y=_cta)

METHODS = {
    "dgd": Method(partial(_descent, form=_cta), ("W",), vectors=1, exact=False),
    "diffusion": Method(partial(_descent, form=_atc), ("W",), vectors=1, exact=False),
    "local_sgd": Method(_local_sgd, ("W", "local_steps"), vectors=1, exact=False),
    "extra": Method(_extra, ("W",), vectors=1),
    "exact_diffusion": Method(_exact_diffusion, ("W",), vectors=1),
    "nids": Method(_nids, ("W",), vectors=1),
    "gradient_tracking_atc": Method(_tracking_atc, ("W", "W"), vectors=2),
    "gradient_tracking_cta": Method(_tracking_cta, ("W", "W"), vectors=2),
    "push_pull_atc": Method(_tracking_atc, ("R", "C"), vectors=2),
    "push_pull_semi": Method(_tracking_semi, ("R", "C"), vectors=2),
    "ab_cta": Method(_tracking_cta, ("R", "C"), vectors=2),
}

_CHECKS = {"W": check_doubly_stochastic, "R": check_row_stochastic, "C": check_column_stochastic}


def run(
    method: str, grads: Gradients, Z0: Stacked, lr: float, iterations: int, **weights: Any
) -> Trajectory:
    """Z at the start and after each iteration; where it diverges, inf and nan.

    The weights are W, or R and C, as METHODS says. `local_sgd` takes local_steps too,
    and its W may be a stack, gone through in turn: one matrix per averaging.
    """
    if not iterations >= 0:
        raise ValueError(f"iterations must not be negative; got {iterations}.")
    every = states(method, grads, Z0, lr, **weights)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack([state.Z for state in islice(every, iterations + 1)])


def states(
    method: str, grads: Gradients, Z0: Stacked, lr: float, **weights: Any
) -> Iterator[State]:
    """The endless sequence behind `run`, with what the method remembers."""
    if method not in METHODS:
        raise ValueError(unknown("method", method, METHODS))
    if not 0 < lr < np.inf:
        raise ValueError(f"lr must be positive and finite; got {lr}.")
    takes = METHODS[method].takes
    if set(weights) != set(takes):
        raise ValueError(
            f"{method} takes {' and '.join(dict.fromkeys(takes))}; "
            f"got {' and '.join(weights) or 'nothing'}."
        )
    Z = np.asarray(Z0, float)
    if Z.ndim != 2:
        raise ValueError(f"Z0 must have one row per node; got shape {Z.shape}.")
    given = {
        name: _checked(name, value, len(Z), stack=method == "local_sgd")
        for name, value in weights.items()
    }
    return METHODS[method].recursion(grads, Z, lr, *(given[name] for name in takes))


def _checked(name: str, value: Any, nodes: int, stack: bool) -> Any:
    if name == "local_steps":
        check_count(name, value)
        return value
    matrix = np.asarray(value, float)
    if matrix.shape[-2:] != (nodes, nodes) or matrix.ndim > 2 + stack:
        raise ValueError(
            f"{name} must have a row and a column for each of the {nodes} rows of Z0; "
            f"got shape {matrix.shape}."
        )
    for i, one in enumerate(matrix.reshape(-1, nodes, nodes)):
        _CHECKS[name](one, name if matrix.ndim == 2 else f"{name}[{i}]")
    return matrix


def dgd_fixed_point(problem: Problem, W: Mixing, lr: float) -> Stacked:
    """Solve (I - W) Z + lr grad(Z) = 0: where DGD ends on a quadratic.

    W need only be row-stochastic; then this lies near the minimiser of the sum of
    pi_i f_i, with pi = left_perron(W).
    """
    return _descent_fixed_point(problem, W, lr, np.eye(len(W)))


def diffusion_fixed_point(problem: Problem, W: Mixing, lr: float) -> Stacked:
    """Solve (I - W) Z + lr W grad(Z) = 0: where diffusion ends on a quadratic."""
    return _descent_fixed_point(problem, W, lr, W)


def _descent_fixed_point(problem, W, lr, mix) -> Stacked:
    """Solve (I - W) Z + lr mix grad(Z) = 0."""
    check_row_stochastic(W, "W")
    H, h = coefficients(problem)
    nodes, dim = h.shape
    apart = np.kron(np.eye(nodes) - W, np.eye(dim))
    # mix times the block-diagonal matrix of the H_i, without forming the latter
    curve = np.einsum("ij,jab->iajb", mix, H).reshape(apart.shape)
    return np.linalg.solve(apart + lr * curve, lr * (mix @ h).ravel()).reshape(h.shape)

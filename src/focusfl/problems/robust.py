"""Robust regression: a non-convex problem without a known optimum."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from focusfl.core import random as keys
from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import (
    check_count,
    check_fits,
    check_not_negative,
    check_share,
)
from focusfl.problems.problem import Objective, Problem, rows_of
from focusfl.problems.synthetic import FEWER
from focusfl.problems.weights import Weights, shares_of, weights_of

ROBUST_L = 2.0  # |phi''| <= phi''(0) for phi(t) = t^2 / (1 + t^2)


@dataclass(frozen=True)
class Bounded(Objective):
    """f(x) = mean over rows of phi(a·x - b) with phi(t) = t^2 / (1 + t^2)."""

    def grad(self, x, data, batch):
        del batch
        t = data["A"] @ x - data["b"]
        return (2 * t / (1 + t**2) ** 2) @ data["A"] / t.shape[0]

    def evaluate(self, x, eval_data):
        t = eval_data["A"] @ x - eval_data["b"]
        if "w" in eval_data:  # of every row
            grad = (eval_data["w"] * 2 * t / (1 + t**2) ** 2) @ eval_data["A"]
            loss = (eval_data["w"] * t**2 / (1 + t**2)).sum()
        else:
            grad = self.grad(x, eval_data, None)
            loss = (t**2 / (1 + t**2)).sum() / t.shape[0]
        return {"loss": loss, "grad_norm": (grad @ grad) ** 0.5}

    def evaluate_clients(self, x, client_eval_data):
        t = client_eval_data["A"] @ x - client_eval_data["b"]
        return {"loss": (t**2 / (1 + t**2)).mean(-1)}


@dataclass(frozen=True, eq=False)
class Robust(Problem):
    """f_i(x) = mean over rows of phi(a·x - b), phi(t) = t^2 / (1 + t^2).

    Regression that outliers cannot pull far: their loss is at most 1. General
    non-convex: 0 <= F <= 1, phi'' = 2 (1 - 3 t^2) / (1 + t^2)^3 lies in [-1/2, 2], and
    no optimum is known.
    """

    A: Float[np.ndarray, "clients rows dim"]  # features
    b: Float[np.ndarray, "clients rows"]  # answers
    weights: Weights = None  # of clients: "samples", "equal" or numbers

    def __post_init__(self):
        A, b = rows_of("b", self.A, self.b)
        weights = weights_of(self.weights, len(b), [b.shape[1]] * len(b))
        for name, value in {"A": A, "b": b, "weights": weights}.items():
            object.__setattr__(self, name, value)

    @property
    def num_clients(self):
        return len(self.b)

    @property
    def objective(self):
        return Bounded()

    @property
    def data(self):
        return {"A": self.A, "b": self.b}

    @property
    def client_eval_data(self):
        return self.data

    @property
    def eval_data(self):
        pooled = {"A": self.A.reshape(-1, self.A.shape[2]), "b": self.b.reshape(-1)}
        if self.weights is not None:
            rows = self.b.shape[1]
            pooled["w"] = np.repeat(shares_of(self.weights) / rows, rows)
        return pooled

    @property
    def x0(self):
        return np.zeros(self.A.shape[2])

    @cached_property
    def L(self) -> float:
        """The smoothness that every f_i has."""
        rows = self.A.shape[1]
        return ROBUST_L * float(np.linalg.norm(self.A, 2, axis=(1, 2)).max()) ** 2 / rows

    @cached_property
    def L_F(self) -> float:
        """The smoothness of F."""
        A, w = self.eval_data["A"], self.eval_data.get("w")
        if w is not None:
            return ROBUST_L * float(np.linalg.norm(np.sqrt(w)[:, None] * A, 2)) ** 2
        return ROBUST_L * float(np.linalg.norm(A, 2)) ** 2 / len(A)


@PROBLEMS.register("robust")
def robust(
    num_clients: int = 8,
    dim: int = 10,
    rows: int = 30,
    heterogeneity: float = 1.0,
    outliers: float = 0.2,
    noise: float = 0.1,
    seed: int = 0,
    weights: Weights = None,
) -> Robust:
    """Draw a regression where client i has a model of its own and some rows lie.

    Args:
        num_clients: N.
        dim: numbers in the model.
        rows: per client.
        heterogeneity: how far clients' own models are from the common one, per entry.
        outliers: share of answers that are off by a normal of size 10, 0 to 1.
        noise: standard deviation of what is added to all answers.
        seed: of all that is drawn.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If a number is out of its range.
    """
    for name, count in {"num_clients": num_clients, "dim": dim, "rows": rows}.items():
        check_count(name, count)
    check_not_negative("heterogeneity", heterogeneity)
    check_not_negative("noise", noise)
    check_share("outliers", outliers)
    values = num_clients * rows * dim
    check_fits(f"robust with {num_clients:,} clients", values, FEWER)
    rng = keys.rng(seed, "robust")
    A = rng.standard_normal((num_clients, rows, dim)) / np.sqrt(dim)
    common = rng.standard_normal(dim)
    own = common + heterogeneity * rng.standard_normal((num_clients, dim))
    b = (A @ own[..., None])[..., 0] + noise * rng.standard_normal((num_clients, rows))
    lies = rng.random((num_clients, rows)) < outliers
    b = b + lies * 10 * rng.standard_normal((num_clients, rows))
    return Robust(A, b, weights)

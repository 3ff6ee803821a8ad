"""A non-convex problem whose optimum is known all the same."""

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
    check_positive,
    reals,
)
from focusfl.problems.problem import Objective, Problem
from focusfl.problems.synthetic import FEWER

WAVE_L = 8.0  # g'' = 2 + 6 cos 2t for g(t) = t^2 + 3 sin^2 t
# g'^2 / (2 g) is least, 0.1755, at t = 2.20; past 3 it is above (2t-3)^2 / (2 t^2 + 6).
WAVE_PL = 0.175


@dataclass(frozen=True)
class Waves(Objective):
    """f(x) = sum over rows of w g(a·x - b) + c·x with g(t) = t^2 + 3 sin^2 t."""

    def grad(self, x, data, batch):
        del batch  # all data, every time
        t = data["A"] @ x - data["b"]
        slope = 2 * t + 3 * t.__array_namespace__().sin(2 * t)
        return (data["w"] * slope) @ data["A"] + data["c"]

    def evaluate(self, x, eval_data):
        # The w have mean 1 and the c mean 0: F is the sum of g alone.
        t = eval_data["A"] @ x - eval_data["b"]
        xp = t.__array_namespace__()
        grad = (2 * t + 3 * xp.sin(2 * t)) @ eval_data["A"]
        error = eval_data["inverse"] @ t  # from the nearest minimiser
        return {
            "distance": (error @ error) ** 0.5 / eval_data["unit"],
            "loss": (t**2 + 3 * xp.sin(t) ** 2).sum(),
            "grad_norm": (grad @ grad) ** 0.5,
        }

    def evaluate_clients(self, x, client_eval_data):
        t = client_eval_data["A"] @ x - client_eval_data["b"]
        heights = t**2 + 3 * t.__array_namespace__().sin(t) ** 2
        return {"loss": client_eval_data["w"] @ heights + client_eval_data["c"] @ x}


@dataclass(frozen=True, eq=False)
class Wavy(Problem):
    """F(x) = sum of g(a_j·x - b_j), g(t) = t^2 + 3 sin^2 t: non-convex, with one floor.

    Client i holds f_i(x) = sum of w_ij g(a_j·x - b_j) + c_i·x with w_ij > 0 of mean 1
    over clients and c_i of mean 0: none is convex, none has its minimiser where F has.

    F* = 0, attained where A x = b and nowhere else: g' vanishes at 0 only. For A of
    full row rank, |grad F|^2 = |A^T g'|^2 >= s^2 sum g'^2 >= 2 (0.175 s^2) F with s the
    smallest singular value of A: the PL condition with beta = 0.175 s^2. With a square
    A the minimiser is unique; `distance` is from the nearest one.
    """

    A: Float[np.ndarray, "rows dim"]
    b: Float[np.ndarray, " rows"]
    w: Float[np.ndarray, "clients rows"]
    c: Float[np.ndarray, "clients dim"]

    def __post_init__(self):
        A, b = reals("A", self.A, ("row", "column")), reals("b", self.b, ("row",))
        w = reals("w", self.w, ("client", "row"))
        c = reals("c", self.c, ("client", "column"))
        rows, dim = A.shape
        if b.shape != (rows,) or w.shape[1:] != (rows,) or c.shape != (len(w), dim):
            raise ValueError(
                "A must have shape (rows, d), b (rows,), w (clients, rows) and c "
                f"(clients, d); got {A.shape}, {b.shape}, {w.shape} and {c.shape}."
            )
        singular = np.linalg.svd(A, compute_uv=False)
        if rows > dim or not singular[-1] > 1e-12 * singular[0]:
            raise ValueError(
                "A must have full row rank, or F need not be PL; got shape "
                f"{A.shape} with singular values down to {singular[-1]:.3g}."
            )
        for name, off in {
            "w must be positive with mean 1 over clients": max(
                float(np.abs(w.mean(0) - 1).max()), -float(w.min())
            ),
            "c must have mean 0 over clients": float(np.abs(c.mean(0)).max()),
        }.items():
            if not off < 1e-9:
                raise ValueError(f"{name}; it is off by {off:.3g}.")
        for name, value in {"A": A, "b": b, "w": w, "c": c}.items():
            object.__setattr__(self, name, value)

    @property
    def num_clients(self):
        return len(self.w)

    @property
    def objective(self):
        return Waves()

    @cached_property
    def data(self):
        n = self.num_clients
        A, b = (np.broadcast_to(a, (n, *a.shape)) for a in (self.A, self.b))
        return {"A": A, "b": b, "w": self.w, "c": self.c}

    @property
    def client_eval_data(self):
        return {"A": self.A, "b": self.b, "w": self.w, "c": self.c}

    @cached_property
    def optimum(self) -> Float[np.ndarray, " dim"]:
        """The minimiser of F that is nearest to 0."""
        return np.linalg.pinv(self.A) @ self.b

    @cached_property
    def eval_data(self):
        norm = np.linalg.norm(self.optimum)
        return {
            "A": self.A,
            "b": self.b,
            "inverse": np.linalg.pinv(self.A),
            "unit": np.float64(norm if norm > 0 else 1.0),
        }

    @property
    def x0(self):
        return np.zeros(self.A.shape[1])

    @cached_property
    def L(self) -> float:
        """The smoothness that every f_i has: |g''| <= 8."""
        H = np.einsum("ji,nj,jk->nik", self.A, self.w, self.A)
        return WAVE_L * float(np.linalg.eigvalsh(H).max())

    @cached_property
    def _singular(self):
        return np.linalg.svd(self.A, compute_uv=False)

    @property
    def L_F(self) -> float:
        """The smoothness of F."""
        return WAVE_L * float(self._singular[0]) ** 2

    @property
    def beta(self) -> float:
        """The PL constant of F."""
        return WAVE_PL * float(self._singular[-1]) ** 2

    @property
    def curvature(self) -> tuple[float, float]:
        """The smallest non-zero and the largest curvature of F at its minimisers."""
        return WAVE_L * float(self._singular[-1]) ** 2, self.L_F


@PROBLEMS.register("wavy")
def wavy(
    num_clients: int = 8,
    dim: int = 10,
    rows: int | None = None,
    condition: float = 2.0,
    heterogeneity: float = 1.0,
    distance: float = 4.0,
    seed: int = 0,
) -> Wavy:
    """Draw a non-convex problem with the PL condition and F* = 0.

    Args:
        num_clients: N.
        dim: numbers in the model.
        rows: of A, 1 to dim; dim if None.
        condition: ratio of the largest and the smallest singular value of A, at least
            1.
        heterogeneity: size of clients' gradients at x*; up to 1 spreads curvatures too.
        distance: size of the residuals at x0 = 0, some waves from the optimum.
        seed: of all that is drawn.

    Raises:
        ValueError: If a number is out of its range.
    """
    rows = dim if rows is None else rows
    for name, count in {"num_clients": num_clients, "dim": dim, "rows": rows}.items():
        check_count(name, count)
    check_not_negative("heterogeneity", heterogeneity)
    check_not_negative("distance", distance)
    check_positive("condition", condition)
    if condition < 1:
        raise ValueError(f"condition must be at least 1; got {condition}.")
    check_fits(f"wavy with {num_clients:,} clients", num_clients * dim**2, FEWER)
    if not 1 <= rows <= dim:
        raise ValueError(f"rows must lie in 1..dim; got {rows} with dim = {dim}.")
    rng = keys.rng(seed, "wavy")
    left = np.linalg.qr(rng.standard_normal((rows, rows)))[0]
    right = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:rows]
    A = left * np.geomspace(1, condition, rows) @ right
    b = distance * rng.standard_normal(rows)
    spread = min(heterogeneity, 1.0)
    w = 1 + 0.8 * spread * (2 * rng.random((num_clients, rows)) - 1)
    c = heterogeneity * rng.standard_normal((num_clients, dim))
    return Wavy(A, b, w / w.mean(0), c - c.mean(0))

"""Non-convex problems: `Robust`, without a known optimum, and `Wavy`, whose optimum is known."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from focusfl.core.validation import reals
from focusfl.problems.convex import RowProblem, metrics_of, unit_of
from focusfl.problems.problem import (
    Objective,
    Problem,
    Weights,
    rows_of,
    set_fields,
    shares_of,
    weights_of,
)

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
        if "w" in eval_data:  # the share of each row in F
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
class Robust(RowProblem):
    """f_i(x) = mean over rows of phi(a·x - b), phi(t) = t^2 / (1 + t^2).

    Regression that outliers cannot pull far, as no row's loss exceeds 1. It is non-convex:
    0 <= F <= 1, phi'' = 2 (1 - 3 t^2) / (1 + t^2)^3 lies in [-1/2, 2], and no optimum is
    known.

    Raises:
        ValueError: If shapes do not fit, or a number is not finite.
    """

    A: Float[np.ndarray, "clients rows dim"]  # features
    b: Float[np.ndarray, "clients rows"]  # targets
    weights: Weights = None  # of clients: "samples", "equal" or numbers

    def __post_init__(self):
        A, b = rows_of("b", self.A, self.b)
        weights = weights_of(self.weights, len(b), [b.shape[1]] * len(b))
        set_fields(self, A=A, b=b, weights=weights)

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
        loss = (t**2 + 3 * xp.sin(t) ** 2).sum()
        return metrics_of(loss, grad, error, eval_data["unit"])

    def evaluate_clients(self, x, client_eval_data):
        t = client_eval_data["A"] @ x - client_eval_data["b"]
        heights = t**2 + 3 * t.__array_namespace__().sin(t) ** 2
        return {"loss": client_eval_data["w"] @ heights + client_eval_data["c"] @ x}


@dataclass(frozen=True, eq=False)
class Wavy(Problem):
    """F(x) = sum of g(a_j·x - b_j) with g(t) = t^2 + 3 sin^2 t: non-convex, but PL.

    Client i holds f_i(x) = sum of w_ij g(a_j·x - b_j) + c_i·x, where the w_ij > 0 have mean 1
    over clients and the c_i have mean 0: no f_i is convex, and none has its
    minimum where F has.

    F* = 0 is attained where A x = b and nowhere else, as g' vanishes at 0 only. For A of
    full row rank, |grad F|^2 = |A^T g'|^2 >= s^2 sum g'^2 >= 2 (0.175 s^2) F, where s is the
    smallest singular value of A: the PL condition with beta = 0.175 s^2. With a square A
    the minimiser is unique; `distance` is from the nearest one.

    Raises:
        ValueError: If shapes do not fit, A has not full row rank, or w or c has another
            mean or sign.
    """

    A: Float[np.ndarray, "rows dim"]  # rows that all clients share
    b: Float[np.ndarray, " rows"]  # where each wave has its floor
    w: Float[np.ndarray, "clients rows"]  # heights of the waves
    c: Float[np.ndarray, "clients dim"]  # slopes

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
        set_fields(self, A=A, b=b, w=w, c=c)

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
        inverse = np.linalg.pinv(self.A)
        return {"A": self.A, "b": self.b, "inverse": inverse, "unit": unit_of(self.optimum)}

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

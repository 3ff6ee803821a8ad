"""Logistic regression with a penalty: real data, and an optimum known to rounding."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from focusfl.problems.newton import newton
from focusfl.problems.problem import Objective, Problem, aligned

AT_ONCE = 1 << 16  # rows weighted together: all at once would be a copy of the data


@dataclass(frozen=True)
class LogisticLoss(Objective):
    """f(x) = sum over rows of w log(1 + exp(-b a·x)) + penalty |x|^2 / 2.

    Data has w b, from which both can be told: two arrays would be fetched one by one.
    """

    penalty: float

    def grad(self, x, data, batch):
        del batch  # all data, every time
        return self._slopes(x, data) @ data["A"] + self.penalty * x

    def evaluate(self, x, held):
        grad = self.grad(x, held, None)
        margin = self._margins(x, held)
        xp = margin.__array_namespace__()
        loss = (abs(held["wb"]) * xp.logaddexp(0 * margin, -margin)).sum()
        error = x - held["optimum"]
        return {
            "distance": (error @ error) ** 0.5 / held["unit"],
            "loss": loss + self.penalty * (x @ x) / 2,
            "grad_norm": (grad @ grad) ** 0.5,
        }

    def _slopes(self, x, data):
        """The derivative of every row's loss by its a·x."""
        margin = self._margins(x, data)
        # 1 / (1 + exp(margin)) without overflow on either side
        miss = (1 - margin.__array_namespace__().tanh(margin / 2)) / 2
        return -data["wb"] * miss

    def _margins(self, x, data):
        product = data["A"] @ x
        return product.__array_namespace__().sign(data["wb"]) * product


@dataclass(frozen=True, eq=False)
class Logistic(Problem):
    """f_i is the mean logistic loss over client i's rows, plus penalty |x|^2 / 2.

    Clients may have rows to spare: a row with b = 0 is padding and counts for nothing.
    """

    A: Float[np.ndarray, "clients rows dim"]
    b: Float[np.ndarray, "clients rows"]  # labels, +1 or -1
    penalty: float = 0.01

    def __post_init__(self):
        A, b = np.asarray(self.A, float), np.asarray(self.b, float)
        if A.ndim != 3 or b.shape != A.shape[:2]:
            raise ValueError(
                "A must have shape (clients, rows, d) and b (clients, rows); "
                f"got {A.shape} and {b.shape}."
            )
        if not np.all(np.isfinite(A)):
            raise ValueError("A must be finite; it holds NaN or infinity.")
        wrong = b[(b != 1) & (b != -1) & (b != 0)]
        if wrong.size:
            raise ValueError(
                f"labels must be +1 or -1, or 0 for padding; got {wrong[0]}."
            )
        without = np.flatnonzero(~np.any(b != 0, axis=1))
        if without.size:
            raise ValueError(f"client {without[0]} has no rows; leave it out.")
        if not self.penalty > 0:
            raise ValueError(
                f"penalty must be positive, or there may be no minimiser; "
                f"got {self.penalty}."
            )
        object.__setattr__(self, "A", aligned(A))
        object.__setattr__(self, "b", b)

    @property
    def num_clients(self):
        return len(self.b)

    @property
    def objective(self):
        return LogisticLoss(self.penalty)

    @cached_property
    def data(self):
        real = self.b != 0
        return {"A": self.A, "wb": self.b / real.sum(1, keepdims=True)}

    @cached_property
    def _pooled(self):
        """Everybody's rows as one client's; its f is F."""
        dim = self.A.shape[2]
        wb = self.data["wb"].ravel() / self.num_clients
        return {"A": self.A.reshape(-1, dim), "wb": wb}

    def _hessian(self, x) -> Float[np.ndarray, "dim dim"]:
        A, wb = self._pooled["A"], self._pooled["wb"]
        bend = abs(wb) / (4 * np.cosh(A @ x / 2) ** 2)
        return _gram(A, bend) + self.penalty * np.eye(A.shape[1])

    @cached_property
    def optimum(self) -> Float[np.ndarray, " dim"]:
        """x*, by Newton's method until rounding stops it."""

        def grad(x):
            return self.objective.grad(x, self._pooled, None)

        return newton(grad, self._hessian, self.x0)

    @cached_property
    def held(self):
        norm = np.linalg.norm(self.optimum)
        unit = np.float64(norm if norm > 0 else 1.0)
        return {**self._pooled, "optimum": self.optimum, "unit": unit}

    @property
    def x0(self):
        return np.zeros(self.A.shape[2])

    @cached_property
    def L(self) -> float:
        """The smoothness that every f_i has: a quarter of the top Gram eigenvalue."""
        tops = [
            np.linalg.norm(np.sqrt(abs(wb))[:, None] * A, 2) ** 2
            for A, wb in zip(self.A, self.data["wb"], strict=True)
        ]
        return float(max(tops) / 4 + self.penalty)

    @cached_property
    def L_F(self) -> float:
        """The smoothness of F."""
        A, wb = self._pooled["A"], self._pooled["wb"]
        return float(np.linalg.eigvalsh(_gram(A, abs(wb)))[-1] / 4 + self.penalty)

    @property
    def mu(self) -> float:
        """The strong convexity that every f_i has, from the penalty alone."""
        return self.penalty

    @cached_property
    def mu_F(self) -> float:
        """The curvature of F at x*: its strong convexity where it matters."""
        return float(np.linalg.eigvalsh(self._hessian(self.optimum))[0])

    @cached_property
    def unusual(self):
        grads = [
            self.objective.grad(self.optimum, {"A": A, "wb": wb}, None)
            for A, wb in zip(self.A, self.data["wb"], strict=True)
        ]
        return np.linalg.norm(grads, axis=1)


def _gram(A: Float[np.ndarray, "rows dim"], w: Float[np.ndarray, " rows"]):
    """The sum over rows of w a a^T."""
    first, *more = (
        (A[i : i + AT_ONCE].T * w[i : i + AT_ONCE]) @ A[i : i + AT_ONCE]
        for i in range(0, len(A), AT_ONCE)
    )
    return sum(more, first)

"""Quadratics and least squares: their optimum is known exactly."""

import abc
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_not_negative, reals
from focusfl.problems.convex import KnownOptimum, Matrix, RowProblem, Vector, metrics_of
from focusfl.problems.problem import (
    Objective,
    Weights,
    mean_of,
    rows_of,
    set_fields,
    shares_of,
    weights_of,
)

EIGEN_DIM = 512  # up to this d, an eigendecomposition for each client takes no time to speak of


class _Quadratics(KnownOptimum):
    """Base of problems with quadratic f_i, whose F is a quadratic of one d x d matrix."""

    @property
    @abc.abstractmethod
    def mean(self) -> tuple[Matrix, Vector, float]:
        """H, h and c of F(x) = x·H x / 2 - h·x + c."""

    @property
    @abc.abstractmethod
    def spectrum(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue of any client's Hessian."""

    @cached_property
    def optimum(self) -> Vector:
        """x*, the minimiser of F."""
        hessian, linear, _ = self.mean
        return np.linalg.solve(hessian, linear)

    @cached_property
    def _mean_spectrum(self) -> tuple[float, float]:
        eigenvalues = np.linalg.eigvalsh(self.mean[0])
        if not eigenvalues[0] > 0:
            raise ValueError(
                "the mean of the H_i must be positive definite, or F has no single "
                f"minimiser; its smallest eigenvalue is {eigenvalues[0]:.3g}."
            )
        return float(eigenvalues[0]), float(eigenvalues[-1])

    @property
    def mu(self) -> float:
        """The strong convexity that every f_i has."""
        return self.spectrum[0]

    @property
    def L(self) -> float:
        """The smoothness that every f_i has."""
        return self.spectrum[1]

    @property
    def mu_F(self) -> float:
        """The strong convexity of F."""
        return self._mean_spectrum[0]

    @property
    def L_F(self) -> float:
        """The smoothness of F."""
        return self._mean_spectrum[1]

    @cached_property
    def eval_data(self):
        hessian, linear, constant = self.mean
        return {
            "H": hessian, "h": linear, "c": np.float64(constant), "optimum": self.optimum,
            "unit": self.unit,
        }  # fmt: skip


@dataclass(frozen=True)
class Gram(Objective):
    """f(x) = x·H x / 2 - h·x."""

    def grad(self, x, data, batch):
        del batch  # all data, every time
        return data["H"] @ x - data["h"]

    def evaluate(self, x, eval_data):
        grad = eval_data["H"] @ x - eval_data["h"]
        loss = x @ (grad - eval_data["h"]) / 2 + eval_data["c"]
        return metrics_of(loss, grad, x - eval_data["optimum"], eval_data["unit"])

    def evaluate_clients(self, x, client_eval_data):
        H, h, c = (client_eval_data[name] for name in ("H", "h", "c"))
        return {"loss": (H @ x / 2 - h) @ x + c}


@dataclass(frozen=True)
class Rows(Gram):
    """f(x) = sum over rows of (a·x - b)^2 + penalty * |x|^2."""

    penalty: float

    def grad(self, x, data, batch):
        del batch
        return 2 * ((data["A"] @ x - data["b"]) @ data["A"] + self.penalty * x)

    def evaluate_clients(self, x, client_eval_data):
        residual = client_eval_data["A"] @ x - client_eval_data["b"]
        return {"loss": (residual**2).sum(-1) + self.penalty * (x @ x)}


@dataclass(frozen=True, eq=False)
class Quadratic(_Quadratics):
    """f_i(x) = x·H_i x / 2 - h_i·x + c_i, given as matrices.

    Raises:
        ValueError: If shapes do not fit, an H_i is not symmetric, or the mean of the H_i is
            not positive definite.
    """

    H: Float[np.ndarray, "clients dim dim"]  # symmetric
    h: Float[np.ndarray, "clients dim"]  # linear terms
    c: Float[np.ndarray, " clients"] | None = None  # constants; zeros if None
    weights: Weights = None  # of clients: "equal", or numbers

    def __post_init__(self):
        H = reals("H", self.H, ("client", "row", "column"))
        h = reals("h", self.h, ("client", "column"))
        if H.shape[1] != H.shape[2] or h.shape != H.shape[:2]:
            raise ValueError(
                "H must have shape (clients, d, d) and h (clients, d); "
                f"got {H.shape} and {h.shape}."
            )
        gap = np.abs(H - H.swapaxes(1, 2)).max(axis=(1, 2))
        worst = int(gap.argmax())
        if gap[worst] > 1e-10 * np.abs(H[worst]).max():
            raise ValueError(
                f"every H_i must be symmetric; H[{worst}] and its transpose differ by "
                f"{gap[worst]:.3g}. Use (H + H.swapaxes(1, 2)) / 2."
            )
        c = np.zeros(len(H)) if self.c is None else reals("c", self.c, ("client",))
        if c.shape != h.shape[:1]:
            raise ValueError(f"c must have shape {h.shape[:1]}; got {c.shape}.")
        set_fields(self, H=H, h=h, c=c, weights=weights_of(self.weights, len(H)))
        self._mean_spectrum  # noqa: B018  raises when F has no single minimiser

    @property
    def num_clients(self):
        return len(self.h)

    @property
    def x0(self):
        return np.zeros(self.h.shape[1])

    @property
    def objective(self):
        return Gram()

    @property
    def data(self):
        return {"H": self.H, "h": self.h}

    @property
    def client_eval_data(self):
        return {**self.data, "c": self.c}

    @cached_property
    def mean(self):
        parts = self.H, self.h, np.asarray(self.c)
        hessian, linear, constant = (mean_of(self.weights, part) for part in parts)
        return hessian, linear, float(constant)

    @cached_property
    def spectrum(self):
        eigenvalues = np.linalg.eigvalsh(self.H)
        return float(eigenvalues.min()), float(eigenvalues.max())


@PROBLEMS.register("least_squares")
@dataclass(frozen=True, eq=False)
class LeastSquares(RowProblem, _Quadratics):
    """f_i(x) = sum over rows of (a·x - b)^2 + penalty * |x|^2, given as rows.

    Gradients are computed from Gram matrices where d <= 2 * rows, and from the rows where
    there are fewer of them.

    Raises:
        ValueError: If shapes do not fit, penalty is negative, or F has no single minimiser.
    """

    A: Float[np.ndarray, "clients rows dim"]  # features
    b: Float[np.ndarray, "clients rows"]  # targets
    penalty: float = 0.0  # factor of |x|^2
    weights: Weights = None  # of clients: "samples", "equal" or numbers

    def __post_init__(self):
        A, b = rows_of("b", self.A, self.b)
        check_not_negative("penalty", self.penalty)
        weights = weights_of(self.weights, len(b), [b.shape[1]] * len(b))
        set_fields(self, A=A, b=b, weights=weights)
        self._mean_spectrum  # noqa: B018  raises when F has no single minimiser

    @property
    def through_rows(self) -> bool:
        """Whether two products with the rows are cheaper than one with A^T A."""
        _, rows, dim = self.A.shape
        return 2 * rows < dim

    @property
    def objective(self):
        return Rows(self.penalty) if self.through_rows else Gram()

    @cached_property
    def data(self):
        if self.through_rows:
            return {"A": self.A, "b": self.b}
        At = self.A.swapaxes(1, 2)
        ridge = 2 * self.penalty * np.eye(self.A.shape[2])
        return {"H": 2 * At @ self.A + ridge, "h": 2 * (At @ self.b[..., None])[..., 0]}

    @property
    def client_eval_data(self):
        if self.through_rows:
            return self.data
        return {**self.data, "c": (self.b**2).sum(1)}

    @cached_property
    def mean(self):
        clients, _, dim = self.A.shape
        A, b = self.A, self.b
        if self.weights is not None:  # (a·x - b)^2 of a row counts by its client's weight
            root = np.sqrt(clients * shares_of(self.weights))[:, None]
            A, b = root[..., None] * A, root * b
        A, b = A.reshape(-1, dim), b.reshape(-1)
        hessian = 2 * (A.T @ A / clients + self.penalty * np.eye(dim))
        return hessian, 2 * A.T @ b / clients, float(b @ b / clients)

    @cached_property
    def spectrum(self):
        _, rows, dim = self.A.shape
        singular = np.linalg.svd(self.A, compute_uv=False) ** 2
        smallest = 0.0 if rows < dim else float(singular.min())
        return 2 * (smallest + self.penalty), 2 * (float(singular.max()) + self.penalty)

"""What convex problems share: rows of numbers, a computed optimum, Newton's method."""

import abc
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from focusfl.problems.problem import Problem

MAX_STEPS = 100  # of Newton's method

Vector = Float[np.ndarray, " dim"]
Matrix = Float[np.ndarray, "dim dim"]


class RowProblem(Problem):
    """Base of problems whose clients hold rows `A`, (clients, rows, dim)."""

    A: Float[np.ndarray, "clients rows dim"]

    @property
    def num_clients(self):
        return len(self.A)

    @property
    def x0(self):
        return np.zeros(self.A.shape[2])


class KnownOptimum(Problem):
    """Base of problems that compute their optimum; models are one vector of float64."""

    @property
    @abc.abstractmethod
    def optimum(self) -> Vector:
        """x*, the minimiser of F."""

    @property
    def unit(self) -> np.float64:
        """The norm of x*, which distances are relative to; 1 where x* is 0."""
        return unit_of(self.optimum)

    @cached_property
    def disagreement(self) -> Float[np.ndarray, " clients"]:
        def norm(client: int) -> float:
            data = {name: leaf[client] for name, leaf in self.data.items()}
            return float(np.linalg.norm(self.objective.grad(self.optimum, data, None)))

        return np.array([norm(client) for client in range(self.num_clients)])


class PenalizedRows(RowProblem, KnownOptimum):
    """Base of problems of rows whose f_i end in penalty |x|^2 / 2 with penalty > 0."""

    penalty: float

    @abc.abstractmethod
    def mean_grad(self, x: Vector) -> Vector:
        """Compute the gradient of F."""

    @abc.abstractmethod
    def mean_hessian(self, x: Vector) -> Matrix:
        """Compute the Hessian of F."""

    @cached_property
    def optimum(self) -> Vector:
        """x*, the minimiser of F, by Newton's method until rounding stops it."""
        try:
            return newton(self.mean_grad, self.mean_hessian, self.x0)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"A must be so small that the penalty of {self.penalty:g} counts beside its "
                f"squares; its largest number is {np.abs(self.A).max():.3g}. Scale A, or raise "
                "penalty."
            ) from None

    @property
    def mu(self) -> float:
        """The strong convexity that every f_i has: what the penalty alone gives."""
        return self.penalty

    @cached_property
    def mu_F(self) -> float:
        """The smallest curvature of F at x*."""
        return float(np.linalg.eigvalsh(self.mean_hessian(self.optimum))[0])


def unit_of(optimum: Vector) -> np.float64:
    """Return the norm of an optimum, which distances are relative to; 1 if it is 0."""
    norm = np.linalg.norm(optimum)
    return np.float64(norm if norm > 0 else 1.0)


def metrics_of(loss: Any, grad: Any, error: Any, unit: Any) -> dict[str, Any]:
    """Name the metrics of a model whose optimum is known.

    Args:
        loss: F, a scalar.
        grad: the gradient of F, (dim,).
        error: the model minus the optimum, (dim,).
        unit: what the distance is relative to.
    """
    return {
        "distance": (error @ error) ** 0.5 / unit,
        "loss": loss,
        "grad_norm": (grad @ grad) ** 0.5,
    }


def newton(
    grad: Callable[[Vector], Vector], hessian: Callable[[Vector], Matrix], x: Vector
) -> Vector:
    """Find the minimiser of a smooth, strongly convex function to rounding.

    Args:
        grad: computes the gradient.
        hessian: computes the Hessian.
        x: where to begin.

    Returns:
        The point at which the gradient shrinks no further; after 100 steps the last one.
    """
    best = np.inf
    for _ in range(MAX_STEPS):
        slope = grad(x)
        size = float(np.linalg.norm(slope))
        if size >= best and size < 1e-12:
            break
        best, step, length = size, np.linalg.solve(hessian(x), slope), 1.0
        # Halve the step until the gradient shrinks: far from x*, Newton may overshoot.
        while length > 1e-10 and size > 1e-12:
            if np.linalg.norm(grad(x - length * step)) < size:
                break
            length /= 2
        x = x - length * step
    return x

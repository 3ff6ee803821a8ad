"""Logistic regression with a penalty: real data, and an optimum known to rounding."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Shaped

from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_positive
from focusfl.problems.newton import newton
from focusfl.problems.problem import Objective, Problem, aligned, mask_of, rows_of
from focusfl.problems.weights import Weights, shares_of, weights_of

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

    def evaluate(self, x, eval_data):
        grad = self.grad(x, eval_data, None)
        loss = self._losses(x, eval_data).sum()
        error = x - eval_data["optimum"]
        return {
            "distance": (error @ error) ** 0.5 / eval_data["unit"],
            "loss": loss + self.penalty * (x @ x) / 2,
            "grad_norm": (grad @ grad) ** 0.5,
        }

    def evaluate_clients(self, x, client_eval_data):
        losses = self._losses(x, client_eval_data).sum(-1)
        return {"loss": losses + self.penalty * (x @ x) / 2}

    def _losses(self, x, data):
        """Every row's loss, with its weight."""
        margin = self._margins(x, data)
        xp = margin.__array_namespace__()
        return abs(data["wb"]) * xp.logaddexp(0 * margin, -margin)

    def _slopes(self, x, data):
        """The derivative of every row's loss by its a·x."""
        margin = self._margins(x, data)
        # 1 / (1 + exp(margin)) without overflow on either side
        miss = (1 - margin.__array_namespace__().tanh(margin / 2)) / 2
        return -data["wb"] * miss

    def _margins(self, x, data):
        product = data["A"] @ x
        return product.__array_namespace__().sign(data["wb"]) * product


@PROBLEMS.register("logistic")
@dataclass(frozen=True, eq=False)
class Logistic(Problem):
    """f_i is the mean logistic loss over client i's rows, plus penalty |x|^2 / 2.

    Labels are -1 and +1, or 0 and 1 (false and true), of which 0 becomes -1. Clients
    may have rows to spare: `mask` says where there is a row, by default everywhere, and
    b is kept as 0 where there is none. `focusfl.data.stack` pads and makes the mask.
    """

    A: Float[np.ndarray, "clients rows dim"]  # features
    b: Shaped[np.ndarray, "clients rows"]  # labels
    penalty: float = 0.01  # factor of |x|^2 / 2
    mask: Bool[np.ndarray, "clients rows"] | None = None  # where there is a row
    weights: Weights = None  # of clients: "samples", "equal" or numbers

    def __post_init__(self):
        A, b = rows_of("b", self.A, self.b)
        mask = mask_of(self.mask, b)
        # Positive, or there may be no minimiser.
        check_positive("penalty", self.penalty)
        b = np.where(mask, signs("b", b, mask), 0.0)
        weights = weights_of(self.weights, len(b), mask.sum(1))
        checked = {"A": aligned(A), "b": b, "mask": mask, "weights": weights}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

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

    @property
    def client_eval_data(self):
        return self.data

    @cached_property
    def _pooled(self):
        """Everybody's rows as one client's; its f is F."""
        dim = self.A.shape[2]
        wb = self.data["wb"]
        if self.weights is None:
            wb = wb / self.num_clients
        else:
            wb = shares_of(self.weights)[:, None] * wb
        return {"A": self.A.reshape(-1, dim), "wb": wb.ravel()}

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
    def eval_data(self):
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
    def disagreement(self):
        grads = [
            self.objective.grad(self.optimum, {"A": A, "wb": wb}, None)
            for A, wb in zip(self.A, self.data["wb"], strict=True)
        ]
        return np.linalg.norm(grads, axis=1)


def signs(name: str, labels: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Write labels 0 and 1 as -1 and +1; leave those as they are; refuse all others."""
    kinds = np.unique(labels[mask])
    if np.isin(kinds, (-1, 1)).all():
        return labels
    if np.isin(kinds, (0, 1)).all():
        return 2 * labels - 1
    raise ValueError(
        f"{name} must hold labels -1 and +1, or 0 and 1; got "
        f"{', '.join(f'{kind:g}' for kind in kinds[:5])}{', ...' * (len(kinds) > 5)}. "
        "Mark rows that are padding by mask."
    )


def _gram(A: Float[np.ndarray, "rows dim"], w: Float[np.ndarray, " rows"]):
    """The sum over rows of w a a^T."""
    first, *more = (
        (A[i : i + AT_ONCE].T * w[i : i + AT_ONCE]) @ A[i : i + AT_ONCE]
        for i in range(0, len(A), AT_ONCE)
    )
    return sum(more, first)

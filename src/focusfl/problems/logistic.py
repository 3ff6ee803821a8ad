"""Logistic regression with a penalty: real data, and an optimum known to rounding."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Shaped

from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_positive
from focusfl.problems.convex import PenalizedRows, metrics_of
from focusfl.problems.problem import (
    Objective,
    Weights,
    mask_of,
    rows_of,
    set_fields,
    shares_of,
    weights_of,
)

MAX_ROWS = 1 << 16  # that are weighted together: all at once would copy the data


@dataclass(frozen=True)
class LogisticLoss(Objective):
    """f(x) = sum over rows of w log(1 + exp(-b a·x)) + penalty |x|^2 / 2.

    Data holds the product `wb` of weight and label, whose absolute value and sign are the
    two: a compiled round would read two arrays one after the other.
    """

    penalty: float

    def grad(self, x, data, batch):
        del batch  # all data, every time
        return self.slopes(x, data) @ data["A"] + self.penalty * x

    def evaluate(self, x, eval_data):
        grad = self.grad(x, eval_data, None)
        loss = self._losses(x, eval_data).sum() + self.penalty * (x @ x) / 2
        return metrics_of(loss, grad, x - eval_data["optimum"], eval_data["unit"])

    def evaluate_clients(self, x, client_eval_data):
        losses = self._losses(x, client_eval_data).sum(-1)
        return {"loss": losses + self.penalty * (x @ x) / 2}

    def _losses(self, x, data):
        """Compute the weighted loss of every row."""
        margin = self._margins(x, data)
        xp = margin.__array_namespace__()
        return abs(data["wb"]) * xp.logaddexp(0 * margin, -margin)

    def slopes(self, x, data):
        """Compute the derivative of every row's weighted loss by its a·x."""
        margin = self._margins(x, data)
        # 1 / (1 + exp(margin)) without overflow on either side
        miss = (1 - margin.__array_namespace__().tanh(margin / 2)) / 2
        return -data["wb"] * miss

    def _margins(self, x, data):
        product = data["A"] @ x
        return product.__array_namespace__().sign(data["wb"]) * product


@PROBLEMS.register("logistic")
@dataclass(frozen=True, eq=False)
class Logistic(PenalizedRows):
    """f_i is the mean logistic loss over client i's rows, plus penalty |x|^2 / 2.

    Labels are -1 and +1, or 0 and 1 (false and true), of which 0 becomes -1. Clients with
    fewer rows than others are padded: `mask` is true where there is a row, and b is stored
    as 0 where there is none. `focusfl.data.stack` pads and returns the mask.

    Raises:
        ValueError: If shapes do not fit, a label is another, penalty is not positive, or a
            client has no rows.
    """

    A: Float[np.ndarray, "clients rows dim"]  # features
    b: Shaped[np.ndarray, "clients rows"]  # labels
    penalty: float = 0.01  # factor of |x|^2 / 2
    mask: Bool[np.ndarray, "clients rows"] | None = None  # true for rows; None: all are
    weights: Weights = None  # of clients: "samples", "equal" or numbers

    def __post_init__(self):
        A, b = rows_of("b", self.A, self.b)
        mask = mask_of(self.mask, b)
        # Positive, or there may be no minimiser.
        check_positive("penalty", self.penalty)
        b = np.where(mask, signs("b", b, mask), 0.0)
        weights = weights_of(self.weights, len(b), mask.sum(1))
        set_fields(self, A=A, b=b, mask=mask, weights=weights)

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
        """The rows of all clients as if they were one client's, whose f is F."""
        dim = self.A.shape[2]
        wb = self.data["wb"]
        if self.weights is None:
            wb = wb / self.num_clients
        else:
            wb = shares_of(self.weights)[:, None] * wb
        return {"A": self.A.reshape(-1, dim), "wb": wb.ravel()}

    def mean_grad(self, x):
        return self.objective.grad(x, self._pooled, None)

    def mean_hessian(self, x):
        A, wb = self._pooled["A"], self._pooled["wb"]
        curvature = abs(wb) / (4 * np.cosh(A @ x / 2) ** 2)
        return _gram(A, curvature) + self.penalty * np.eye(A.shape[1])

    @cached_property
    def eval_data(self):
        return {**self._pooled, "optimum": self.optimum, "unit": self.unit}

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


def signs(name: str, labels: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return labels as -1 and +1, from -1 and +1 or from 0 and 1.

    Raises:
        ValueError: If a label where mask is true is neither.
    """
    values = np.unique(labels[mask])
    if np.isin(values, (-1, 1)).all():
        return labels
    if np.isin(values, (0, 1)).all():
        return 2 * labels - 1
    raise ValueError(
        f"{name} must hold labels -1 and +1, or 0 and 1; got "
        f"{', '.join(f'{value:g}' for value in values[:5])}{', ...' * (len(values) > 5)}. "
        "Mark rows that are padding by mask."
    )


def _gram(A: Float[np.ndarray, "rows dim"], w: Float[np.ndarray, " rows"]):
    """Sum w a a^T over rows."""
    first, *more = (
        (A[i : i + MAX_ROWS].T * w[i : i + MAX_ROWS]) @ A[i : i + MAX_ROWS]
        for i in range(0, len(A), MAX_ROWS)
    )
    return sum(more, first)

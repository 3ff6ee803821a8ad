"""What is minimised, with the optimum where it is known."""

from collections.abc import Callable

from focusfl.problems.drawn import random_quadratic, ridge
from focusfl.problems.logistic import Logistic
from focusfl.problems.loss import Learned, from_loss
from focusfl.problems.noisy import Noisy
from focusfl.problems.nonconvex import Robust, Wavy, robust, wavy
from focusfl.problems.problem import Objective, Problem
from focusfl.problems.quadratic import LeastSquares, Quadratic
from focusfl.problems.tabular import heart_disease, libsvm

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "ridge": ridge,
    "least_squares": LeastSquares,
    "quadratic": Quadratic,
    "logistic": Logistic,
    "libsvm": libsvm,
    "heart_disease": heart_disease,
    "random_quadratic": random_quadratic,
    "wavy": wavy,
    "robust": robust,
}

__all__ = [
    "PROBLEMS",
    "LeastSquares",
    "Learned",
    "Logistic",
    "Noisy",
    "Objective",
    "Problem",
    "Quadratic",
    "Robust",
    "Wavy",
    "from_loss",
    "heart_disease",
    "libsvm",
    "random_quadratic",
    "ridge",
    "robust",
    "wavy",
]

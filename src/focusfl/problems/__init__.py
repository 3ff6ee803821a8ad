"""What is minimised, with the optimum where it is known."""

from collections.abc import Callable

from focusfl.problems.problem import Objective, Problem
from focusfl.problems.quadratic import LeastSquares, Quadratic, ridge

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "ridge": ridge,
    "least_squares": LeastSquares,
    "quadratic": Quadratic,
}

__all__ = ["PROBLEMS", "LeastSquares", "Objective", "Problem", "Quadratic", "ridge"]

"""The minimiser of a smooth strongly convex function, to rounding."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

STEPS = 100

Vector = Float[np.ndarray, " dim"]


def newton(
    grad: Callable[[Vector], Vector],
    hessian: Callable[[Vector], Float[np.ndarray, "dim dim"]],
    x: Vector,
) -> Vector:
    """Go from x to where the gradient vanishes, until rounding stops it."""
    best = np.inf
    for _ in range(STEPS):
        slope = grad(x)
        size = float(np.linalg.norm(slope))
        if size >= best and size < 1e-12:
            break
        best, step, length = size, np.linalg.solve(hessian(x), slope), 1.0
        # Half the step until the gradient shrinks: far away Newton may overshoot.
        while length > 1e-10 and size > 1e-12:
            if np.linalg.norm(grad(x - length * step)) < size:
                break
            length /= 2
        x = x - length * step
    return x

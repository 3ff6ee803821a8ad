"""What the suite's cells minimise: 16 clients, every f_i scaled to a smoothness of 1.

Scaled, step sizes are in units of 1/L and constants in units of L; with sizes shared by
all problems of a kind, one compiled program serves all cells that differ in data.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from focusfl.core import random as keys
from focusfl.data.samples import digits
from focusfl.problems import (
    Logistic,
    Noisy,
    Problem,
    Quadratic,
    Robust,
    networks,
    synthetic,
)

CLIENTS, DIM = 16, 20
ROWS, FEATURES = 24, 17  # of logistic and robust regression
PENALTY = 0.01  # of logistic regression: in units of L, so the condition is up to 100


def quadratics(condition: int, seed: int, alike: bool = False, unequal: int = 1) -> Quadratic:
    """Quadratics with eigenvalues spread evenly in the logarithm over `condition`.

    Clients that are `alike` share eigenvectors and eigenvalues but for a tenth, and
    minimisers; else all are their own. Curvatures of clients lie a factor `unequal`
    apart.
    """
    rng = keys.rng(seed, "suite", "quadratics")
    bases = 1 if alike else CLIENTS
    basis = np.linalg.qr(rng.standard_normal((bases, DIM, DIM)))[0]
    values = np.geomspace(1 / condition, 1, DIM) * np.ones((CLIENTS, 1))
    if alike:
        values = values * rng.uniform(0.9, 1.0, values.shape)
    values = values * rng.permutation(np.geomspace(1 / unequal, 1, CLIENTS))[:, None]
    H = basis @ (values[..., None] * basis.swapaxes(1, 2))
    optima = rng.standard_normal(DIM)
    optima = optima + (0.1 if alike else 1.0) * rng.standard_normal((CLIENTS, DIM))
    return _scaled(H, (H @ optima[..., None])[..., 0])


def ridge(rows: int, seed: int) -> Quadratic:
    """The paper's ridge regression; with fewer rows than the model has numbers, no
    client could find a model alone."""
    problem = synthetic.ridge(CLIENTS, DIM, rows, seed=seed)
    return _scaled(problem.data["H"], problem.data["h"])


def _scaled(H: np.ndarray, h: np.ndarray) -> Quadratic:
    L = np.linalg.eigvalsh(H).max()
    return Quadratic((H + H.swapaxes(1, 2)) / (2 * L), h / L)


def labels(seed: int) -> Logistic:
    """Logistic regression on two clouds; clients have 2 to 98 % of the one."""
    rng = keys.rng(seed, "suite", "labels")
    share = rng.permutation(np.linspace(0.02, 0.98, CLIENTS))[:, None]
    b = np.where(rng.random((CLIENTS, ROWS)) < share, 1.0, -1.0)
    A = rng.standard_normal((CLIENTS, ROWS, FEATURES))
    A += b[..., None] * rng.standard_normal(FEATURES) / 2
    A += rng.standard_normal((CLIENTS, 1, FEATURES)) / 2  # features of their own
    return _logistic(A, b)


def written_digits() -> Logistic:
    """Even or odd, by logistic regression on digits of 4 x 4 pixels; a client has
    those of one or two numbers."""
    images, numbers, _ = digits()
    pooled = images.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, FEATURES - 1)
    x = np.column_stack([(pooled - pooled.mean(0)) / pooled.std(0), np.ones(len(images))])
    order = np.argsort(numbers, kind="stable")
    samples = order[: len(order) // CLIENTS * CLIENTS].reshape(CLIENTS, -1)[:, :ROWS]
    return _logistic(x[samples], np.where(numbers[samples] % 2 == 0, 1.0, -1.0))


def _logistic(A: np.ndarray, b: np.ndarray) -> Logistic:
    curved = Logistic(A, b, PENALTY).L - PENALTY
    return Logistic(A * np.sqrt((1 - PENALTY) / curved), b, PENALTY)


def outliers(seed: int) -> Robust:
    """Robust regression, which is not convex: a tenth of the answers are wrong."""
    rng = keys.rng(seed, "suite", "outliers")
    A = rng.standard_normal((CLIENTS, ROWS, FEATURES))
    A /= np.sqrt(Robust(A, A[..., 0]).L)
    optima = rng.standard_normal(FEATURES) + rng.standard_normal((CLIENTS, FEATURES)) / 4
    b = (A @ optima[..., None])[..., 0] + 0.1 * rng.standard_normal((CLIENTS, ROWS))
    wrong = rng.random(b.shape) < 0.1
    return Robust(A, b + wrong * 10 * rng.standard_normal(b.shape))


def noisy(exact: dict[str, Any], scale: float) -> Noisy:
    """Another problem with noise on its gradients."""
    return Noisy(problem_of(exact), scale)


def images(model: str, alpha: float) -> Problem:
    """Handwritten digits by a network and batches of 16; clients' digits are uneven."""
    return networks.digits(model, CLIENTS, alpha=alpha)


MAKERS: dict[str, Callable[..., Problem]] = {
    "quadratics": quadratics,
    "ridge": ridge,
    "labels": labels,
    "written_digits": written_digits,
    "outliers": outliers,
    "noisy": noisy,
    "images": images,
}


def problem_of(about: dict[str, Any]) -> Problem:
    """The problem that is described; built once in a process."""
    return _build(json.dumps(about))


@cache
def _build(text: str) -> Problem:
    options = json.loads(text)
    return MAKERS[options.pop("kind")](**options)

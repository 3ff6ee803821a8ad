"""What is minimised: F(x), the mean of f_i(x) over clients, each counted by its weight."""

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from focusfl.core.tree import Tree
from focusfl.core.validation import LARGE, check_one_of, numeric, reals

Weights = str | list | Float[np.ndarray, " clients"] | None  # as a user gives them
PAD = "focusfl.data.stack pads clients to one length; give its mask"


@dataclass(frozen=True)
class Objective(abc.ABC):
    """The functions of a problem, apart from its data.

    An objective is a value: frozen, hashable, and equal to its copy. Where it can, it uses
    operators and methods alone, so that it runs on NumPy, jax and torch.
    """

    stochastic: ClassVar[bool] = False  # whether `grad` needs a `Batch` to draw from

    @abc.abstractmethod
    def grad(self, x: Tree, data: Tree, batch: Any) -> Tree:
        """Compute the gradient of one client's f_i at x.

        Args:
            x: the model.
            data: this client's entry of every leaf of `Problem.data`.
            batch: a `Batch` with a random key and the number of the batch; None where the
                objective is not stochastic.

        Returns:
            A tree like x.
        """

    @abc.abstractmethod
    def evaluate(self, x: Tree, eval_data: Tree) -> dict[str, Any]:
        """Compute metrics of the model x: a scalar by each name.

        Tables and figures know `loss` (F), `grad_norm` (of F) and `distance` (from the
        optimum, relative to its norm).

        Args:
            x: the model.
            eval_data: `Problem.eval_data`.
        """

    def evaluate_clients(self, x: Tree, client_eval_data: Tree) -> dict[str, Any]:
        """Compute metrics of the model x for each client: arrays of shape (clients,).

        Called with per_client=True only.

        Args:
            x: the model.
            client_eval_data: `Problem.client_eval_data`.

        Raises:
            NotImplementedError: If the objective does not have it.
        """
        raise NotImplementedError


class Problem(abc.ABC):
    """An objective and the data of all clients.

    Theory and lr="auto" also read, where a problem has them, the numbers `L` and `mu`
    (smoothness and strong convexity of every f_i), `L_F` and `mu_F` (those of F), and
    `optimum`, the minimiser of F.
    """

    dtype = "float64"  # of the model; convex problems need it to show exactness
    # How much each client counts in F, (clients,), or None: all alike. A client of weight 2
    # is two clients that always take part together. `evaluate` is of the same F.
    weights: Any = None

    @property
    @abc.abstractmethod
    def num_clients(self) -> int:
        """N, the number of clients."""

    @property
    def total_weight(self) -> float | int:
        """The sum of the weights; N where all are alike."""
        if self.weights is None:
            return self.num_clients
        return math.fsum(self.weights)

    @property
    @abc.abstractmethod
    def objective(self) -> Objective:
        """The functions that engines call."""

    @property
    @abc.abstractmethod
    def data(self) -> Tree:
        """A tree of arrays (clients, ...): entry i of every leaf is what client i can see."""

    def check_compiles(self) -> None:  # noqa: B027
        """Raise ValueError if the simulator cannot compile this; almost always it can."""

    @property
    @abc.abstractmethod
    def eval_data(self) -> Tree:
        """What `Objective.evaluate` gets."""

    @property
    def client_eval_data(self) -> Tree:
        """What `Objective.evaluate_clients` gets; None where that does not exist."""
        return None

    @property
    @abc.abstractmethod
    def x0(self) -> Tree:
        """The model that a run starts from unless the user gives another."""

    @property
    def disagreement(self) -> Any:
        """The norm of each client's gradient at x*, (clients,); None where x* is unknown."""
        return None

    @property
    def class_counts(self) -> Any:
        """The number of samples by client and class, (clients, classes); None: no labels."""
        return None


def set_fields(problem: Problem, **values: Any) -> None:
    """Set fields of a frozen problem to their checked values, in its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(problem, name, value)


def weights_of(
    weights: Weights, num_clients: int, samples: Any = None
) -> Float[np.ndarray, " clients"] | None:
    """Return a weight for each client, or None if all are 1.

    "samples" weighs a client by its number of samples over the mean number: the weights of
    N clients add up to N, and step sizes keep their meaning. Numbers are used as they are.

    Args:
        weights: "samples", "equal" (as None is), or a positive number for each client.
        num_clients: N.
        samples: how many each client has, (clients,); None if the problem has none.

    Raises:
        ValueError: If a word is not known, or a weight is not positive and finite.
    """
    if weights is None:
        return None
    if isinstance(weights, str):
        check_one_of("weights", weights, ("samples", "equal"))
        if weights == "equal":
            return None
        if samples is None:
            raise ValueError(
                'weights must be "equal" or a number for each client; got "samples" '
                "for a problem whose clients have no samples to count by."
            )
        counts = np.asarray(samples, float)
        numbers = counts / counts.mean()
    else:
        numbers = check_weights(weights, num_clients)
    return None if (numbers == 1).all() else numbers


def check_weights(value: Any, num_clients: int) -> Float[np.ndarray, " clients"]:
    """Return weights as floats; raise ValueError unless they are positive and finite."""
    weights = numeric("weights", value)
    if weights.shape != (num_clients,) or weights.dtype == bool:
        raise ValueError(
            f"weights must be {num_clients} numbers, one for each client; got "
            f"{weights.dtype} of shape {weights.shape}."
        )
    weights = np.asarray(weights, float)
    wrong = np.flatnonzero(~((weights >= 1 / LARGE) & (weights <= LARGE)))
    if wrong.size:
        raise ValueError(
            f"weights must be positive and finite, from {1 / LARGE:g} to {LARGE:g}; got "
            f"{weights[wrong[0]]:g} for client {wrong[0]}. Leave out a client that is not to "
            "count."
        )
    return weights


def shares_of(weights: Any) -> Float[np.ndarray, " clients"]:
    """Return the factor of each client's f_i in F; they add up to 1."""
    return weights / np.sum(weights)


def mean_of(weights: Any, values: np.ndarray) -> Any:
    """Return the weighted mean over clients, which are the first axis of `values`."""
    if weights is None:
        return values.mean(0)
    return np.tensordot(shares_of(weights), values, 1)


def rows_of(
    name: str, A: Any, b: Any
) -> tuple[Float[np.ndarray, "clients rows dim"], Float[np.ndarray, "clients rows"]]:
    """Check the rows of all clients and a number for each row; return both as float64.

    Args:
        name: what messages call `b`.
        A: rows, (clients, rows, dim).
        b: a number for each row, (clients, rows).

    Raises:
        ValueError: If a shape is another, or a number is not finite.
    """
    try:
        A = reals("A", A, ("client", "row", "column"))
        b = reals(name, b, ("client", "row"))
    except ValueError as error:
        if "differing" not in str(error):
            raise
        raise ValueError(f"{str(error)[:-1]}. {PAD}") from None
    if b.shape != A.shape[:2]:
        raise ValueError(
            f"A must have shape (clients, rows, columns) and {name} (clients, rows); "
            f"got {A.shape} and {b.shape}."
        )
    for what, array in (("A", A), (name, b)):
        if (largest := float(np.abs(array).max())) > LARGE:
            raise ValueError(
                f"{what} must hold numbers of at most {LARGE:g}, or squares are infinite; got "
                f"{largest:.3g}. Scale it."
            )
    return A, b


def mask_of(mask: Any, b: Float[np.ndarray, "clients rows"]) -> Bool[np.ndarray, "clients rows"]:
    """Check a mask of the rows that are not padding; None means that none is padding.

    Raises:
        ValueError: If the shape is not that of `b`, or a client has padding only.
    """
    if mask is None:
        return np.ones(b.shape, bool)
    mask = numeric("mask", mask)
    if mask.shape != b.shape or not np.isin(mask, (0, 1)).all():
        raise ValueError(
            f"mask must be true or false for every row, of shape {b.shape}; got "
            f"{mask.shape} of type {mask.dtype}."
        )
    without = np.flatnonzero(~mask.any(1))
    if without.size:
        raise ValueError(f"client {without[0]} has no rows; leave it out.")
    return mask.astype(bool)

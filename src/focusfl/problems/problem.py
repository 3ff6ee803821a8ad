"""What is minimised: F(x), the mean of f_i(x) over clients, client i holding f_i."""

import abc
import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from focusfl.core.tree import Tree
from focusfl.core.validation import numeric, reals

PAD = "focusfl.data.stack pads clients to one length; give its mask"


@dataclass(frozen=True)
class Objective(abc.ABC):
    """The functions of a problem, apart from its data. A value, as an algorithm is one.

    Written with operators only where it can be, so that it runs on any array library.
    """

    stochastic: ClassVar[bool] = False  # whether `grad` wants a `Batch` to draw from

    @abc.abstractmethod
    def grad(self, x: Tree, data: Tree, batch: Any) -> Tree:
        """The gradient of one client's f, given that client's data."""

    @abc.abstractmethod
    def evaluate(self, x: Tree, eval_data: Tree) -> dict[str, Any]:
        """Describe x by scalars: loss, grad_norm, distance if x* is known."""

    def evaluate_clients(self, x: Tree, client_eval_data: Tree) -> dict[str, Any]:
        """Describe x by what it is to each client: arrays of shape (clients,).

        Only per_client=True asks for it.
        """
        raise NotImplementedError


def aligned(a: np.ndarray) -> np.ndarray:
    """Give an array that a compiled program on a CPU can use where it is.

    It must begin at a multiple of 64 bytes, or every run would make a copy.
    """
    if a.ctypes.data % 64 == 0 and a.flags.c_contiguous:
        return a
    room = np.empty(a.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    out = room[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


def rows_of(name: str, A: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Check everybody's rows, and one number for each row; give both as float64."""
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
    return A, b


def mask_of(mask: Any, b: np.ndarray) -> np.ndarray:
    """Check which rows are no padding; everybody must have one."""
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


class Problem(abc.ABC):
    """An objective and everybody's data."""

    dtype = "float64"  # of the model; convex problems need it to show exactness
    # How much each client counts in F, (clients,): one of weight 2 is two clients that
    # always come together. None: all alike. `evaluate` is of the same F.
    weights: Any = None

    @property
    @abc.abstractmethod
    def num_clients(self) -> int: ...

    @property
    def total_weight(self) -> float | int:
        """The sum of the weights; N where all are alike."""
        if self.weights is None:
            return self.num_clients
        return math.fsum(self.weights)

    @property
    @abc.abstractmethod
    def objective(self) -> Objective: ...

    @property
    @abc.abstractmethod
    def data(self) -> Tree:
        """Leaves (clients, ...): row i is what client i alone can see."""

    def check_compiles(self) -> None:  # noqa: B027
        """Raise ValueError if the simulator cannot compile this; almost always it can."""

    @property
    @abc.abstractmethod
    def eval_data(self) -> Tree:
        """What `evaluate` may look at."""

    @property
    def client_eval_data(self) -> Tree:
        """What `evaluate_clients` may look at; None where it is not written."""
        return None

    @property
    @abc.abstractmethod
    def x0(self) -> Tree:
        """The model to start from when the user names none."""

    @property
    def held(self) -> Tree:
        """The old name of `eval_data`."""
        words = "held is now called eval_data; the old name goes with the next release."
        warnings.warn(words, DeprecationWarning, stacklevel=2)
        return self.eval_data

    @property
    def disagreement(self) -> Any:
        """How much each client disagrees with x*; None where that is unknown."""
        return None

    @property
    def class_counts(self) -> Any:
        """Count samples by client and class, (clients, classes); None: no labels."""
        return None

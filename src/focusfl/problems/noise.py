"""Problems with noise on their gradients; `Noisy` is the setting of SG-FOCUS."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.core.validation import check_is, check_not_negative
from focusfl.problems.problem import Objective, Problem


@dataclass(frozen=True)
class ObjectiveWithNoise(Objective):
    """Base of objectives that add noise to the gradients of another objective."""

    exact: Objective

    stochastic: ClassVar[bool] = True

    def evaluate(self, x, eval_data):
        return self.exact.evaluate(x, eval_data)

    def evaluate_clients(self, x, client_eval_data):
        return self.exact.evaluate_clients(x, client_eval_data)


@dataclass(frozen=True, eq=False)
class ProblemWithNoise(Problem):
    """Base of problems that differ from another problem, `exact`, in their gradients only."""

    exact: Problem

    def __post_init__(self):
        check_is("exact", self.exact, Problem)
        if isinstance(self.exact, ProblemWithNoise):
            raise ValueError(
                "exact must be a problem without noise of its own, which no privacy account "
                f"would count; got a {type(self.exact).__name__}."
            )

    # All but the gradients is that of the other problem.
    num_clients = property(attrgetter("exact.num_clients"))
    weights = property(attrgetter("exact.weights"))
    data = property(attrgetter("exact.data"))
    eval_data = property(attrgetter("exact.eval_data"))
    client_eval_data = property(attrgetter("exact.client_eval_data"))
    x0 = property(attrgetter("exact.x0"))
    disagreement = property(attrgetter("exact.disagreement"))
    class_counts = property(attrgetter("exact.class_counts"))


@dataclass(frozen=True)
class NoisyObjective(ObjectiveWithNoise):
    """An objective that adds new noise to the gradients of another one in every step."""

    scale: float

    def grad(self, x, data, batch):
        return add_noise(self.exact.grad(x, data, None), self.scale, batch)


@dataclass(frozen=True, eq=False)
class Noisy(ProblemWithNoise):
    """A problem with normal noise on the gradients of another one.

    Args:
        exact: the problem without noise.
        scale: standard deviation of the noise on every entry, at least 0.

    Raises:
        ValueError: If `exact` is not a problem or has noise, or scale is negative.
    """

    scale: float

    def __post_init__(self):
        super().__post_init__()
        check_not_negative("scale", self.scale)

    @property
    def objective(self):
        return NoisyObjective(self.exact.objective, self.scale)


def add_noise(grad: Tree, scale: Any, batch: Any, *stream: int) -> Tree:
    """Add normal noise to a gradient.

    Args:
        grad: the gradient, a tree of arrays of NumPy, jax or torch.
        scale: standard deviation of the noise on every entry.
        batch: a `Batch`, from whose key and number the noise is drawn.
        stream: numbers that distinguish this noise from other draws for the batch.

    Returns:
        A tree like grad, of the same types.
    """
    import jax

    leaves, structure = jax.tree.flatten(grad)
    noisy = []
    for number, leaf in enumerate(leaves):
        with jax.enable_x64(leaf.dtype == "float64"):
            key = keys.fold(batch.key, batch.number, *stream, number)
            noise: Any = jax.random.normal(key, leaf.shape, leaf.dtype)
        # NumPy stays NumPy: jax would take over every operation that follows.
        noise = np.asarray(noise) if isinstance(leaf, np.ndarray) else noise
        noisy.append((leaf + scale * noise).astype(leaf.dtype))
    return jax.tree.unflatten(structure, noisy)

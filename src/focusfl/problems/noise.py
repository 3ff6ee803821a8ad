"""Problems whose gradients carry noise; `Noisy` is the setting of SG-FOCUS."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.core.validation import check_is, check_not_negative
from focusfl.problems.problem import Objective, Problem


@dataclass(frozen=True)
class ObjectiveWithNoise(Objective):
    """Base of objectives that add noise to the gradients of another one."""

    exact: Objective

    stochastic: ClassVar[bool] = True

    def evaluate(self, x, eval_data):
        return self.exact.evaluate(x, eval_data)

    def evaluate_clients(self, x, client_eval_data):
        return self.exact.evaluate_clients(x, client_eval_data)


@dataclass(frozen=True, eq=False)
class ProblemWithNoise(Problem):
    """Base of problems that differ from another one, `exact`, in their gradients only."""

    exact: Problem

    def __post_init__(self):
        check_is("exact", self.exact, Problem)
        if isinstance(self.exact, ProblemWithNoise):
            raise ValueError(
                "exact must be a problem without noise of its own, which no privacy account "
                f"would count; got a {type(self.exact).__name__}."
            )

    @property
    def num_clients(self):
        return self.exact.num_clients

    @property
    def weights(self):
        return self.exact.weights

    @property
    def data(self):
        return self.exact.data

    @property
    def eval_data(self):
        return self.exact.eval_data

    @property
    def client_eval_data(self):
        return self.exact.client_eval_data

    @property
    def x0(self):
        return self.exact.x0

    @property
    def disagreement(self):
        return self.exact.disagreement

    @property
    def class_counts(self):
        return self.exact.class_counts


@dataclass(frozen=True)
class NoisyObjective(ObjectiveWithNoise):
    """Another objective, whose gradients carry new noise in every step."""

    scale: float

    def grad(self, x, data, batch):
        return add_noise(self.exact.grad(x, data, None), self.scale, batch)


@dataclass(frozen=True, eq=False)
class Noisy(ProblemWithNoise):
    """A problem whose clients see their gradients plus scale times normal noise."""

    scale: float  # standard deviation in every entry

    def __post_init__(self):
        super().__post_init__()
        check_not_negative("scale", self.scale)

    @property
    def objective(self):
        return NoisyObjective(self.exact.objective, self.scale)


def add_noise(grad: Tree, scale: Any, batch: Any, *stream: int) -> Tree:
    """Add normal noise of standard deviation `scale` to a gradient.

    Args:
        grad: the gradient.
        scale: standard deviation in every entry.
        batch: a `Batch`, whose key and number the noise is drawn from.
        stream: numbers that tell this noise from what else is drawn for the batch.
    """
    import jax

    leaves, structure = jax.tree.flatten(grad)
    noisy = []
    for number, leaf in enumerate(leaves):
        with jax.enable_x64(leaf.dtype == "float64"):
            key = keys.fold(batch.key, batch.number, *stream, number)
            noise: Any = jax.random.normal(key, leaf.shape, leaf.dtype)
        # numpy models stay numpy: jax would take over every operation after this one.
        noise = np.asarray(noise) if isinstance(leaf, np.ndarray) else noise
        noisy.append((leaf + scale * noise).astype(leaf.dtype))
    return jax.tree.unflatten(structure, noisy)

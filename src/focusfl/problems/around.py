"""What problems share that put noise on the gradients of another one."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.problems.problem import Objective, Problem


@dataclass(frozen=True)
class ObjectiveAround(Objective):
    """Another objective, with gradients of its own."""

    exact: Objective

    stochastic: ClassVar[bool] = True

    def evaluate(self, x, eval_data):
        return self.exact.evaluate(x, eval_data)

    def evaluate_clients(self, x, client_eval_data):
        return self.exact.evaluate_clients(x, client_eval_data)


@dataclass(frozen=True, eq=False)
class ProblemAround(Problem):
    """Another problem, with an objective of its own."""

    exact: Problem  # the problem itself

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


def with_noise(grad: Tree, scale: Any, batch: Any, *stream: int) -> Tree:
    """A gradient plus scale times normal noise, which this batch and stream draw."""
    import jax

    leaves, structure = jax.tree.flatten(grad)
    noisy = []
    for number, leaf in enumerate(leaves):
        with jax.enable_x64(leaf.dtype == "float64"):
            key = keys.fold(batch.key, batch.number, *stream, number)
            noise: Any = jax.random.normal(key, leaf.shape, leaf.dtype)
        # Stay in the library of the model.
        noise = np.asarray(noise) if isinstance(leaf, np.ndarray) else noise
        noisy.append((leaf + scale * noise).astype(leaf.dtype))
    return jax.tree.unflatten(structure, noisy)

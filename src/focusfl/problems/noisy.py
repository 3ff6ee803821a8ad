"""Any problem with noise on its gradients: where SG-FOCUS lives."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focusfl import keys
from focusfl.checks import check_not_negative, shown
from focusfl.problems.problem import Objective, Problem


@dataclass(frozen=True)
class NoisyObjective(Objective):
    """Another objective, whose gradients carry noise that is new in every step."""

    exact: Objective
    scale: float

    stochastic: ClassVar[bool] = True

    def grad(self, x, data, batch):
        import jax

        grad = self.exact.grad(x, data, None)
        leaves, structure = jax.tree.flatten(grad)
        noisy = []
        for number, leaf in enumerate(leaves):
            with jax.enable_x64(leaf.dtype == "float64"):
                key = keys.fold(batch.key, batch.number, number)
                noise = jax.random.normal(key, leaf.shape, leaf.dtype)
            # Stay in the library of the model.
            own = np.asarray(noise) if isinstance(leaf, np.ndarray) else noise
            noisy.append(leaf + self.scale * own)
        return jax.tree.unflatten(structure, noisy)

    def evaluate(self, x, eval_data):
        return self.exact.evaluate(x, eval_data)

    def evaluate_clients(self, x, client_eval_data):
        return self.exact.evaluate_clients(x, client_eval_data)


@dataclass(frozen=True, eq=False)
class Noisy(Problem):
    """A problem whose clients see their gradients plus scale times normal noise."""

    exact: Problem  # the problem itself
    scale: float  # standard deviation in every entry

    def __post_init__(self):
        if not isinstance(self.exact, Problem):
            raise ValueError(f"exact must be a Problem; got {shown(self.exact)}.")
        from focusfl.problems.private import Private

        if isinstance(self.exact, Private):
            raise ValueError(
                "exact must be a problem without noise; got a Private, whose epsilon "
                "a run would not count any more."
            )
        check_not_negative("scale", self.scale)

    @property
    def num_clients(self):
        return self.exact.num_clients

    @property
    def weights(self):
        return self.exact.weights

    @property
    def objective(self):
        return NoisyObjective(self.exact.objective, self.scale)

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

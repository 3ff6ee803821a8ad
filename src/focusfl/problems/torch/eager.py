"""A module computed by PyTorch itself: what a translation must equal.

And what runs, in the reference engine alone, where there is no translation.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.problems import sets
from focusfl.problems.loss import MeanLoss
from focusfl.problems.torch.module import set_mode, tensors


@dataclass(frozen=True, eq=False, repr=False)
class Eager:
    """A module and its loss."""

    module: Any
    loss: Any  # (outputs, targets) -> a mean, or one number per sample
    metrics: Any = None  # (outputs, targets) -> numbers by name

    def __repr__(self) -> str:
        return f"{type(self.module).__name__} in PyTorch"

    def outputs(self, params: Mapping[str, Any], x: Any, training: bool) -> Any:
        """What the module gives for arrays or tensors, with parameters by name."""
        import torch

        set_mode(self.module, training)
        inputs = x if torch.is_tensor(x) or isinstance(x, tuple) else tensors(x)
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        own = {
            name: leaf if torch.is_tensor(leaf) else torch.tensor(np.asarray(leaf))
            for name, leaf in params.items()
        }
        return torch.func.functional_call(self.module, own, inputs)

    def grad(
        self, x: Mapping[str, Any], samples: Tree, training: bool, weights: Any = None
    ) -> tuple[Any, float, dict[str, np.ndarray]]:
        """Outputs, the loss and its gradient; samples weigh the same if not told."""
        import torch

        params = {name: torch.tensor(np.asarray(leaf)).requires_grad_() for name, leaf in x.items()}
        outputs = self.outputs(params, samples["x"], training)
        value = self.loss(outputs, tensors(samples["y"]))
        if weights is None:
            value = value.mean()
        elif value.ndim:
            value = (value * torch.tensor(weights, dtype=value.dtype)).sum()
        else:
            value = value * float(weights.sum())
        found = torch.autograd.grad(value, list(params.values()), allow_unused=True)
        grads = {
            name: np.zeros(np.shape(x[name]), np.asarray(x[name]).dtype)
            if one is None
            else one.numpy()
            for name, one in zip(x, found, strict=True)
        }
        return outputs, value.item(), grads


@dataclass(frozen=True)
class EagerLoss(MeanLoss):
    """The mean loss over a client's samples, by PyTorch: one client after the other.

    What is drawn at random is drawn by PyTorch, from seeds that the batch gives.
    """

    loss_fn: Any  # an `Eager`

    def grad(self, x, data, batch):
        import jax

        places, weights = map(np.asarray, _pick(self)(batch, np.asarray(data["length"])))
        there = weights > 0
        samples = jax.tree.map(lambda a: np.asarray(a)[places[there]], data["samples"])
        seed = keys.fold(batch.key, batch.number, 2)
        with seeded(int(jax.random.bits(seed, dtype="uint32"))):
            _, _, found = self.loss_fn.grad(x, samples, self.draws, weights[there])
        numpy = isinstance(next(iter(x.values())), np.ndarray | np.generic)
        return found if numpy else _like(x, found)

    def evaluate(self, x, eval_data):
        import torch

        eager = self.loss_fn
        with torch.no_grad(), seeded(0):
            outputs = eager.outputs(x, eval_data["x"], False)
            y = tensors(eval_data["y"])
            found = {"loss": eager.loss(outputs, y).mean().item()}
            if eager.metrics is not None:
                asked = eager.metrics(outputs, y)
                found |= {name: float(value) for name, value in asked.items()}
        return found

    def evaluate_clients(self, x, client_eval_data):
        return sets.evaluate_one_by_one(self.evaluate, x, client_eval_data)

    @property
    def each_metric(self):
        """None: the loss may be a mean, and the metrics anything."""

    def check_evaluation(self, x, samples, what):
        """Nothing: the module was tried on samples of every shape."""


@lru_cache(maxsize=8)
def _pick(objective: EagerLoss) -> Callable:
    import jax

    return jax.jit(objective.pick)


def _like(x: Mapping[str, Any], found: Mapping[str, np.ndarray]) -> dict[str, Any]:
    import torch

    return {name: torch.tensor(found[name]) for name in x}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from this seed, and leave the user's own stream as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def still() -> Any:
    """Make a mode of PyTorch in which everything drawn is its mean."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    means = {
        aten.bernoulli_.float: lambda a, p=0.5, **_: a.fill_(p),
        aten.bernoulli_.Tensor: lambda a, p, **_: a.copy_(p),
        aten.bernoulli.default: lambda a, **_: a.clone(),
        aten.bernoulli.p: lambda a, p=0.5, **_: torch.full_like(a, p),
        aten.normal_.default: lambda a, mean=0.0, std=1.0, **_: a.fill_(mean),
        aten.uniform_.default: lambda a, low=0, top=1, **_: a.fill_((low + top) / 2),
        aten.randn_like.default: lambda a, **_: torch.zeros_like(a),
        aten.rand_like.default: lambda a, **_: torch.full_like(a, 0.5),
        aten.randn.default: lambda n, dtype=None, **_: torch.zeros(n, dtype=dtype),
        aten.rand.default: lambda n, dtype=None, **_: torch.full(n, 0.5, dtype=dtype),
    }  # fmt: skip

    class Still(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return means.get(func, func)(*args, **(kwargs or {}))

    return Still()

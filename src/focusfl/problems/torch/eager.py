"""Gradients and metrics of a module by PyTorch itself.

A translation is compared with them, a site of a deployment computes them, and `ff.loop` runs
them where there is no translation.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.compat import torch_dispatch_mode, torch_tree
from focusfl.core import random as keys
from focusfl.core import tree
from focusfl.core.tree import Tree
from focusfl.core.work import EXAMPLES, Work
from focusfl.data import STREAMS
from focusfl.problems import evaluation
from focusfl.problems.loss import MeanLoss, compiled
from focusfl.problems.torch.modules import set_mode, several, tensors


class LossFails(ValueError):
    """A user's loss raised an exception; labels may be out of its range."""


@dataclass(frozen=True, eq=False, repr=False)
class Eager:
    """A module, its loss and its metrics, evaluated by PyTorch on the module's device."""

    module: Any
    loss: Any  # (outputs, targets) -> a mean, or one number per sample
    metrics: Any = None  # (outputs, targets) -> numbers by name

    def __repr__(self) -> str:
        return f"{type(self.module).__name__} in PyTorch"

    @property
    def device(self) -> Any:
        return next(self.module.parameters()).device

    def outputs(self, params: Mapping[str, Any], x: Any, training: bool) -> Any:
        """Compute the outputs of the module for arrays or tensors, with parameters by name."""
        import torch

        set_mode(self.module, training)
        inputs = x if torch.is_tensor(x) or isinstance(x, tuple) else tensors(x, self.device)
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        tensors_by_name = {
            name: leaf if torch.is_tensor(leaf) else self._tensor(leaf)
            for name, leaf in params.items()
        }
        return torch.func.functional_call(self.module, tensors_by_name, inputs)

    def grad(
        self, x: Mapping[str, Any], samples: Tree, training: bool, weights: Any = None
    ) -> tuple[Any, float, dict[str, np.ndarray]]:
        """Compute the outputs, the loss, and its gradient by name.

        Args:
            x: the parameters, by name.
            samples: inputs x and targets y.
            training: whether dropout and the like draw.
            weights: of the samples in the loss, (samples,); None: their mean.
        """
        import torch

        params = {name: self._tensor(leaf).requires_grad_() for name, leaf in x.items()}
        outputs = self.outputs(params, samples["x"], training)
        value = self.loss(outputs, tensors(samples["y"], self.device))
        if weights is None:
            value = value.mean()
        elif value.ndim:
            value = (value * torch.tensor(weights, dtype=value.dtype)).sum()
        else:
            value = value * float(weights.sum())
        grads = torch.autograd.grad(value, list(params.values()), allow_unused=True)
        arrays = {
            name: np.zeros(np.shape(x[name]), np.asarray(x[name]).dtype)
            if grad is None
            else grad.cpu().numpy()
            for name, grad in zip(x, grads, strict=True)
        }
        return outputs, value.item(), arrays

    def evaluate(self, x: Mapping[str, Any], samples: Tree) -> dict[str, float]:
        """Compute the loss and the metrics of samples."""
        import torch

        with torch.no_grad(), seeded(0):
            outputs = self.outputs(x, samples["x"], False)
            targets = tensors(samples["y"], self.device)
            values = {"loss": self.loss(outputs, targets).mean()}
            if self.metrics is not None:
                values |= self.metrics(outputs, targets)
        return {name: float(value) for name, value in values.items()}

    def _tensor(self, leaf: Any) -> Any:
        import torch

        return torch.tensor(np.asarray(leaf), device=self.device)


def site_work(
    eager: Eager, samples: Tree, eval_data: Tree, batch_size: int | None, stream: str,
    seed: int, client: int,
) -> Work:  # fmt: skip
    """Make the `Work` of one site: gradients of its samples, and metrics, by PyTorch.

    Args:
        eager: the module and its functions.
        samples: inputs x and targets y of the site.
        eval_data: samples that the site evaluates on, likewise.
        batch_size: number of samples of a gradient; None: all.
        stream: order of the samples, a name in focusfl.data.STREAMS.
        seed: of that order.
        client: the number of the site, so that orders differ between sites.
    """

    def on_device(part: Tree) -> Tree:
        return tree.map(lambda a: tensors(a, eager.device), part)

    samples, eval_data, length = on_device(samples), on_device(eval_data), count(samples)

    def batch_of(number: int) -> Any:
        if batch_size is None:
            return slice(None)
        return STREAMS[stream](number, length, batch_size, seed, client)

    def grad_fn(x: Mapping[str, np.ndarray], batch: Any) -> dict[str, np.ndarray]:
        return eager.grad(x, tree.map(lambda a: a[batch], samples), training=True)[2]

    def evaluate(x: Mapping[str, np.ndarray]) -> dict[str, float]:
        return eager.evaluate(x, eval_data) | {EXAMPLES: float(count(eval_data))}

    def gradient(x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return eager.grad(x, samples, training=False)[2]  # nothing is dropped at random

    return Work(grad_fn, batch_of, evaluate, gradient)


@dataclass(frozen=True)
class EagerLoss(MeanLoss):
    """The mean loss over a client's samples, computed by PyTorch, one client after the other.

    PyTorch draws at random, from seeds that the batch gives.
    """

    loss_fn: Any  # an `Eager`

    def grad(self, x, data, batch):
        import jax

        pick = compiled(MeanLoss.pick, self)
        places, weights = map(np.asarray, pick(batch, np.asarray(data["length"])))
        real = weights > 0
        samples = tree.map(lambda a: np.asarray(a)[places[real]], data["samples"])
        seed = keys.fold(batch.key, batch.number, 2)
        with seeded(int(jax.random.bits(seed, dtype="uint32"))):
            grads = self.loss_fn.grad(x, samples, self.draws, weights[real])[2]
        numpy = isinstance(next(iter(x.values())), np.ndarray | np.generic)
        return grads if numpy else {name: tensors(grads[name]) for name in x}

    def evaluate(self, x, eval_data):
        return self.loss_fn.evaluate(x, eval_data)

    def evaluate_clients(self, x, client_eval_data):
        return evaluation.evaluate_one_by_one(self.evaluate, x, client_eval_data)

    @property
    def each_metric(self):
        """None, as the loss may be a mean, and metrics may be anything."""

    def check_evaluation(self, x, samples, what):
        """Do nothing: `check_functions` has tried the module on samples of this shape."""


def check_functions(eager: Eager, params: Tree, samples: Tree) -> Eager:
    """Check a module, its loss and its metrics on samples, by PyTorch alone.

    Returns:
        The same, with accuracy as its metrics if it has none and targets are classes.

    Raises:
        ValueError: If one of them fails or returns another shape, or if samples affect each
            other or have different weights in the loss.
        LossFails: If the loss raises.
    """
    import torch

    number, targets = count(samples), tensors(samples["y"], eager.device)
    with torch.no_grad(), deterministic_mode():
        outputs = _call("module", lambda: eager.outputs(params, samples["x"], False), samples["x"])
        value = _call("loss", lambda: eager.loss(outputs, targets), samples["y"])
        shape = tuple(getattr(value, "shape", (None,)))
        if shape not in ((), (number,)) or not value.is_floating_point():
            got = f"shape {shape}" if hasattr(value, "shape") else repr(value)[:60]
            raise ValueError(
                "loss must give one number, the mean over a batch, or the loss of each "
                f"sample, of shape ({number},) for {number}; got {got}."
            )
        _check_independent(eager, params, samples, outputs, value)
        if eager.metrics is None:
            metrics = accuracy if _are_classes(outputs, targets) else None
            return Eager(eager.module, eager.loss, metrics)
        numbers = _call("metrics", lambda: eager.metrics(outputs, targets), samples["y"])
    is_dict = isinstance(numbers, Mapping) and numbers
    if not is_dict or any(getattr(value, "ndim", 0) for value in numbers.values()):
        raise ValueError(f"metrics must give single numbers by name; got {repr(numbers)[:60]}.")
    return eager


def _check_independent(eager: Eager, params: Tree, samples: Tree, outputs: Any, value: Any) -> None:
    """Raise ValueError if samples affect each other, or have different weights in a mean."""
    import torch

    inputs, targets = (tensors(samples[name], eager.device) for name in "xy")
    fewer = eager.outputs(params, torch_tree().tree_map(lambda a: a[:-1], inputs), False)
    for full, part in zip(leaves(outputs), leaves(fewer), strict=True):
        same = full.ndim and full[:-1].shape == part.shape
        if not same or relative_gap([part], [full[:-1]]) > 1e-3:
            raise ValueError(
                "samples must not see each other in the module, along axis 0 of "
                "all it takes and gives; without the last one the others' outputs "
                "change. Use batch_first=True for recurrent layers and attention, "
                "and GroupNorm for BatchNorm."
            )
    if value.ndim:
        return
    each = [
        eager.loss(*torch_tree().tree_map(lambda a, i=i: a[i : i + 1], (outputs, targets)))
        for i in range(count(samples))
    ]
    mean = float(torch.stack(each).mean())
    if abs(float(value) - mean) > 1e-3 * max(abs(mean), abs(float(value))):
        raise ValueError(
            "loss must be a mean in which samples weigh the same; got "
            f"{float(value):.6g} for a batch whose samples have {mean:.6g} on average, "
            "as a mean by the weights of classes has, or a sum. Give the loss of each "
            'sample: reduction="none".'
        )


def accuracy(outputs: Any, targets: Any) -> dict[str, Any]:
    """Compute the share of samples whose class has the highest output."""
    return {"accuracy": (outputs.argmax(1) == targets).double().mean()}


def _are_classes(outputs: Any, targets: Any) -> bool:
    """Whether targets are classes, which outputs score along axis 1."""
    if not hasattr(outputs, "argmax") or not hasattr(targets, "dtype"):
        return False
    whole = not targets.is_floating_point() and str(targets.dtype) != "torch.bool"
    scores = outputs.ndim >= 2 and outputs.is_floating_point() and outputs.shape[1] > 1
    return whole and scores and outputs.argmax(1).shape == targets.shape


def _call(name: str, call: Callable[[], Any], samples: Tree) -> Any:
    try:
        return call()
    except Exception as error:  # the user's own code: anything can happen
        reason = (str(error).splitlines() or [""])[0].rstrip(".")[:200]
        shapes = ", ".join(str(tuple(a.shape)) for a in several(samples))
        kind = LossFails if name == "loss" else ValueError
        end = "" if name == "loss" else "."
        raise kind(
            f"{name} fails on samples of shape {shapes}: {type(error).__name__}: {reason}{end}"
        ) from error


def count(samples: Tree) -> int:
    """Count samples of inputs x and targets y."""
    return len(several(samples["y"])[0])


def pick_samples(samples: Tree, number: int) -> Tree:
    """Pick `number` samples, evenly spaced; some of them twice if there are fewer."""
    places = np.linspace(0, count(samples) - 1, number).round().astype(int)
    return tree.map(lambda a: a[places], samples)


def leaves(outputs: Any) -> list[Any]:
    """List the tensors among a module's outputs."""
    return [a for a in torch_tree().tree_leaves(outputs) if a is not None]


# A gradient that is smaller than this share of the largest is measured by that share.
SMALL_GRADIENT = 1e-2


def relative_gap(first: list[Any], second: list[Any]) -> float:
    """Compute the largest difference of two lists of arrays or tensors, relative to the second."""

    def array(a: Any) -> np.ndarray:
        return np.asarray(a.detach().cpu() if hasattr(a, "detach") else a, float)

    pairs = [(array(a), array(b)) for a, b in zip(first, second, strict=True)]
    largest = max((np.abs(b).max(initial=0) for _, b in pairs), default=0)
    worst = 0.0
    for a, b in pairs:
        scale = max(np.abs(b).max(initial=0), SMALL_GRADIENT * largest) or 1.0
        with np.errstate(invalid="ignore"):  # -inf - -inf: masked in both
            gap = np.abs(np.where(a == b, 0, a - b)).max(initial=0)
        worst = max(worst, float(gap / scale)) if gap == gap else np.inf
    return worst


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let PyTorch draw from this seed, and restore its random state at the end."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def deterministic_mode() -> Any:
    """Make a mode of PyTorch in which every random draw is its mean."""
    import torch

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

    class Deterministic(torch_dispatch_mode()):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return means.get(func, func)(*args, **(kwargs or {}))

    return Deterministic()

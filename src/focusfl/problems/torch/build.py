"""From a module, a loss and metrics of PyTorch to their translation."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from focusfl.core import tree
from focusfl.core.tree import Tree
from focusfl.problems.torch.check import check, check_samples
from focusfl.problems.torch.eager import Eager, still
from focusfl.problems.torch.export import Untranslatable, exported, program
from focusfl.problems.torch.module import aliases, set_mode, several, tensors
from focusfl.problems.torch.program import Program
from focusfl.problems.torch.translated import Metrics, Translated

LOOKED_AT = 64  # samples that the user's functions are tried on, at most
WRITTEN: dict[tuple[str, str], Program] = {}  # by all that torch.export has seen


class LossFails(ValueError):
    """A user's loss raised; labels may be out of its range. Without a full stop."""


def tried(eager: Eager, params: Tree, pooled: Tree) -> Eager:
    """Raise unless module, loss and metrics fit samples; add metrics if none are given.

    On PyTorch alone.
    """
    import torch

    samples = some(pooled, min(LOOKED_AT, max(2, len(several(pooled["y"])[0]))))
    count = len(several(samples["y"])[0])
    y = tensors(samples["y"])
    with torch.no_grad(), still():
        outputs = _called(
            "module", lambda: eager.outputs(params, samples["x"], False), samples["x"]
        )
        value = _called("loss", lambda: eager.loss(outputs, y), samples["y"])
        shape = tuple(getattr(value, "shape", (None,)))
        if shape not in ((), (count,)) or not value.is_floating_point():
            got = f"shape {shape}" if hasattr(value, "shape") else repr(value)[:60]
            raise ValueError(
                "loss must give one number, the mean over a batch, or the loss of each "
                f"sample, of shape ({count},) for {count}; got {got}."
            )
        check_samples(eager, params, samples)
        if eager.metrics is None:
            given = accuracy if _classes(outputs, y) else None
            return Eager(eager.module, eager.loss, given)
        found = _called("metrics", lambda: eager.metrics(outputs, y), samples["y"])
    if not isinstance(found, Mapping) or not found or any(map(np.ndim, found.values())):
        raise ValueError(f"metrics must give single numbers by name; got {repr(found)[:60]}.")
    return eager


def translation(
    eager: Eager, params: Tree, pooled: Tree, eval_data: Tree, batch_size: int
) -> tuple[Translated, Metrics]:
    """Translate what was tried, and check it on a batch against PyTorch.

    Raises:
        Untranslatable: If there is no translation.
        ValueError: If it does not compute what PyTorch computes.
    """
    import torch

    batch, dtype = some(pooled, batch_size), str(next(iter(params.values())).dtype)
    module, inputs = eager.module, tensors(batch["x"])
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    seen = []
    for training in (False, True):
        set_mode(module, training)
        seen.append(exported(module, inputs))
    names = aliases(module)
    evaluation = program(seen[0], names, dtype)
    same = seen[0].graph_module.code == seen[1].graph_module.code
    training_program = evaluation if same else program(seen[1], names, dtype)
    one = some(batch, 1)
    with torch.no_grad(), still():
        outputs = eager.outputs(params, one["x"], False)
    loss = _of_outputs(eager.loss, outputs, one["y"], dtype)
    name = type(module).__name__
    model = Translated(name, training_program, evaluation, loss, batch_size)
    try:
        check(model, eager, params, batch)
    except NotImplementedError as error:  # an operator, with arguments such as these
        raise Untranslatable(f"no translation of {error}") from error
    return model, _metrics(model, eager.metrics, outputs, eval_data, dtype)


def _of_outputs(function: Callable, outputs: Any, y: Tree, dtype: str) -> Program:
    found = exported(_Called(function), (outputs, tensors(y)))
    if found.state_dict or found.constants:
        return program(found, {}, dtype)
    # To write a program down takes a second, and most losses and metrics are alike.
    what = str(found), dtype
    if what not in WRITTEN:
        WRITTEN[what] = program(found, {}, dtype)
    return WRITTEN[what]


def _metrics(
    model: Translated, metrics: Callable | None, one: Any, eval_data: Tree, dtype: str
) -> Metrics:
    import torch

    if metrics is None:
        return Metrics(model, (), None, means=True)
    first = some(eval_data, 1)["y"]
    names = tuple(metrics(one, tensors(first)))

    @cache  # torch.export gives a program of so many samples, and clients may have any
    def asked(count: int) -> Program:
        outputs = torch.utils._pytree.tree_map(lambda a: a.repeat(count, *[1] * (a.ndim - 1)), one)
        y = tree.map(lambda a: np.repeat(a, count, 0), first)
        try:
            return _of_outputs(metrics, outputs, y, dtype)
        except Untranslatable as error:
            raise ValueError(
                f"metrics must give tensors of one number each: {error}. Leave float() "
                "and .item() out, and what leaves PyTorch."
            ) from error

    asked(len(several(eval_data["y"])[0]))
    return Metrics(model, names, asked, means=metrics is accuracy)


def accuracy(outputs: Any, targets: Any) -> dict[str, Any]:
    """The share of samples whose class has the highest output."""
    return {"accuracy": (outputs.argmax(1) == targets).double().mean()}


def _classes(outputs: Any, targets: Any) -> bool:
    """Whether targets are classes that outputs score along axis 1."""
    if not hasattr(outputs, "argmax") or not hasattr(targets, "dtype"):
        return False
    whole = not targets.is_floating_point() and str(targets.dtype) != "torch.bool"
    scores = outputs.ndim >= 2 and outputs.is_floating_point() and outputs.shape[1] > 1
    return whole and scores and outputs.argmax(1).shape == targets.shape


def some(samples: Tree, count: int) -> Tree:
    """So many samples, from all over; some twice if there are fewer."""
    import jax

    length = len(several(samples["y"])[0])
    places = np.linspace(0, length - 1, count).round().astype(int)
    return jax.tree.map(lambda a: a[places], samples)


def _called(name: str, call: Callable[[], Any], samples: Tree) -> Any:
    try:
        return call()
    except Exception as error:  # the user's own code: anything can happen
        reason = (str(error).splitlines() or [""])[0].rstrip(".")[:200]
        shapes = ", ".join(str(tuple(a.shape)) for a in several(samples))
        words = f"{name} fails on samples of shape {shapes}: {type(error).__name__}: "
        if name == "loss":
            raise LossFails(f"{words}{reason}") from error
        raise ValueError(f"{words}{reason}.") from error


def _Called(function: Callable) -> Any:
    """A function of outputs and targets as a module, as torch.export wants one."""
    import torch

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.function = function

        def forward(self, outputs: Any, targets: Any) -> Any:
            return self.function(outputs, targets)

    return Called()

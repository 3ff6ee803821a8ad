"""Translate a module, its loss and its metrics to jax, and compare them with PyTorch."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np

from focusfl.compat import torch_tree
from focusfl.core import tree
from focusfl.core.compilation import run_once
from focusfl.core.tree import Tree
from focusfl.problems.torch.eager import (
    Eager,
    accuracy,
    count,
    deterministic_mode,
    leaves,
    pick_samples,
    relative_gap,
)
from focusfl.problems.torch.export import Untranslatable, exported, write_program
from focusfl.problems.torch.modules import aliases, set_mode, several, tensors
from focusfl.problems.torch.program import Program, Translated, TranslatedMetrics

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}  # relative: no more than rounding
ROUGH = {"hardsigmoid": 1e-7}  # PyTorch's own gradient has 1/6 as a float32
# Programs by their exported graph and type: writing one takes a second, and most losses and
# metrics are alike.
PROGRAMS: dict[tuple[str, str], Program] = {}


def translate(
    eager: Eager, params: Tree, pooled: Tree, eval_data: Tree, batch_size: int
) -> tuple[Translated, TranslatedMetrics]:
    """Translate a module and its functions to jax, and compare them with PyTorch on a batch.

    Args:
        eager: the module and its functions.
        params: the initial parameters by name.
        pooled: the samples of all clients.
        eval_data: samples to evaluate on.
        batch_size: number of samples of a gradient.

    Returns:
        The loss and the metrics, as `from_loss` takes them.

    Raises:
        Untranslatable: If there is no translation.
        ValueError: If it does not compute what PyTorch computes.
    """
    import torch

    batch, dtype = pick_samples(pooled, batch_size), str(next(iter(params.values())).dtype)
    module, inputs = eager.module, tensors(batch["x"])
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    modes = []
    for training in (False, True):
        set_mode(module, training)
        modes.append(exported(module, inputs))
    names = aliases(module)
    evaluation = write_program(modes[0], names, dtype)
    same = modes[0].graph_module.code == modes[1].graph_module.code
    training_program = evaluation if same else write_program(modes[1], names, dtype)
    sample = pick_samples(batch, 1)
    with torch.no_grad(), deterministic_mode():
        outputs = eager.outputs(params, sample["x"], False)
    loss = _program_of(eager.loss, outputs, sample["y"], dtype)
    name = type(module).__name__
    model = Translated(name, training_program, evaluation, loss, batch_size)
    try:
        compare(model, eager, params, batch)
    except NotImplementedError as error:  # an operator, with arguments such as these
        raise Untranslatable(f"no translation of {error}") from error
    return model, _metrics(model, eager.metrics, outputs, eval_data, dtype)


def _program_of(function: Callable, outputs: Any, y: Tree, dtype: str) -> Program:
    """Translate a function of outputs and targets for as many samples as these have."""
    import torch

    class Called(torch.nn.Module):  # torch.export wants a module
        def forward(self, outputs: Any, targets: Any) -> Any:
            return function(outputs, targets)

    module = exported(Called(), (outputs, tensors(y)))
    if module.state_dict or module.constants:
        return write_program(module, {}, dtype)
    key = str(module), dtype
    if key not in PROGRAMS:
        PROGRAMS[key] = write_program(module, {}, dtype)
    return PROGRAMS[key]


def _metrics(
    model: Translated, metrics: Callable | None, outputs: Any, eval_data: Tree, dtype: str
) -> TranslatedMetrics:
    """Translate the user's metrics, given the outputs of one sample."""
    if metrics is None:
        return TranslatedMetrics(model, (), None, are_means=True)
    targets = pick_samples(eval_data, 1)["y"]
    names = tuple(metrics(outputs, tensors(targets)))

    @cache  # a program is of one number of samples, and clients differ
    def program_of(number: int) -> Program:
        repeated = torch_tree().tree_map(lambda a: a.repeat(number, *[1] * (a.ndim - 1)), outputs)
        y = tree.map(lambda a: np.repeat(a, number, 0), targets)
        try:
            return _program_of(metrics, repeated, y, dtype)
        except Untranslatable as error:
            raise ValueError(
                f"metrics must give tensors of one number each: {error}. Leave float() "
                "and .item() out, and what leaves PyTorch."
            ) from error

    program_of(count(eval_data))
    return TranslatedMetrics(model, names, program_of, are_means=metrics is accuracy)


def compare(model: Translated, eager: Eager, params: Tree, samples: Tree) -> None:
    """Compare outputs and gradients in jax with PyTorch's.

    Gradients are those of training, with every random draw replaced by its mean.

    Raises:
        ValueError: If a gap is larger than rounding.
    """
    for training, program in {True: model.training, False: model.evaluation}.items():
        if not training and model.training is model.evaluation:
            continue
        gaps = gaps_of(program, model, eager, params, samples, training)
        rounding = tolerance(program, program.dtype)
        if max(gaps) > rounding and program.dtype == "float32":
            # Rounding, or an error? In float64 it shows.
            wide = Eager(copy.deepcopy(eager.module).double(), eager.loss)
            gaps64 = gaps_of(
                program, model, wide, as_float64(params), as_float64(samples), training
            )
            if max(gaps64) < tolerance(program, "float64"):
                continue
        outputs, grads = gaps
        if not outputs <= rounding:
            raise ValueError(
                f"{model!r} gives other outputs in jax, apart by {outputs:.1e}; rounding "
                f"would be {rounding:.0e}. Please report it."
            )
        if not grads <= rounding:
            raise ValueError(
                f"{model!r} has another gradient in jax, apart by {grads:.1e}; rounding "
                f"would be {rounding:.0e}. For torch.no_grad() in forward, which torch.export "
                "does not see, use detach() or requires_grad_(False)."
            )


def tolerance(program: Program, dtype: str) -> float:
    """Return how far a program may be from PyTorch when computed in this type."""
    rough = (ROUGH[name] for name in program.operators & ROUGH.keys())
    return max(TOLERANCE[dtype], *rough, 0)


def gaps_of(
    program: Program, model: Translated, eager: Eager, params: Tree, samples: Tree,
    training: bool,
) -> tuple[float, float]:  # fmt: skip
    """Compute the relative gaps of outputs and, in training, of gradients from PyTorch's."""
    import jax

    def loss(params, samples):
        outputs = program(params, several(samples["x"]))
        return model.losses(outputs, samples["y"]).mean(), outputs

    function = jax.value_and_grad(loss, has_aux=True) if training else loss
    wide = next(iter(params.values())).dtype == "float64"
    with jax.enable_x64(wide), _on_cpu(), jax.default_matmul_precision("highest"):
        ours = run_once(function, params, samples)
    (value, outputs), grads = ours if training else (ours, {})
    with deterministic_mode():
        theirs, their_value, their_grads = eager.grad(params, samples, training)
    gap = relative_gap([*outputs, value], [*leaves(theirs), np.asarray(their_value)])
    return gap, relative_gap(list(grads.values()), [their_grads[name] for name in grads])


def as_float64(part: Tree) -> Tree:
    """Return a tree with its floats as float64."""
    return tree.map(lambda a: a.astype(float) if a.dtype.kind == "f" else a, part)


def _on_cpu() -> Any:
    """Compute on a CPU, where products of float32 have all their digits."""
    import jax

    try:
        return jax.default_device(jax.devices("cpu")[0])
    except RuntimeError:  # jax was told of other platforms alone
        return nullcontext()

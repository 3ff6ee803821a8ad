"""Whether a translation computes what PyTorch computes, on a batch that is there."""

import copy
from contextlib import nullcontext
from typing import Any

import numpy as np

from focusfl.core.compilation import run_once
from focusfl.core.tree import Tree
from focusfl.problems.torch.eager import Eager, still
from focusfl.problems.torch.module import several, tensors
from focusfl.problems.torch.program import Program, operators
from focusfl.problems.torch.translated import Translated

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}  # relative: rounding, and no more
ROUGH = {"hardsigmoid": 1e-7}  # PyTorch's own gradient has 1/6 as a float32
SMALL = 1e-2  # a gradient that is smaller than this of the largest is measured by that


def check_samples(eager: Eager, params: Tree, samples: Tree) -> None:
    """Raise unless samples do not see each other, and weigh the same in a mean.

    On PyTorch alone.
    """
    import torch

    cut = torch.utils._pytree.tree_map
    with torch.no_grad(), still():
        outputs, y = eager.outputs(params, samples["x"], False), tensors(samples["y"])
        fewer = cut(lambda a: a[:-1], tensors(samples["x"]))
        half = eager.outputs(params, fewer, False)
        for all_of_them, some in zip(leaves(outputs), leaves(half), strict=True):
            same = all_of_them.ndim and all_of_them[:-1].shape == some.shape
            if not same or _apart([some], [all_of_them[:-1]]) > 1e-3:
                raise ValueError(
                    "samples must not see each other in the module, along axis 0 of "
                    "all it takes and gives; without the last one the others' outputs "
                    "change. Use batch_first=True for recurrent layers and attention, "
                    "and GroupNorm for BatchNorm."
                )
        value = eager.loss(outputs, y)
        if value.ndim:
            return
        each = [
            eager.loss(*cut(lambda a, i=i: a[i : i + 1], (outputs, y)))
            for i in range(_length(samples))
        ]
    mean = float(torch.stack(each).mean())
    if abs(float(value) - mean) > 1e-3 * max(abs(mean), abs(float(value))):
        raise ValueError(
            "loss must be a mean in which samples weigh the same; got "
            f"{float(value):.6g} for a batch whose samples have {mean:.6g} on average, "
            "as a mean by the weights of classes has, or a sum. Give the loss of each "
            'sample: reduction="none".'
        )


def check(model: Translated, eager: Eager, params: Tree, samples: Tree) -> float:
    """Raise unless outputs and gradients are PyTorch's; give how far they are apart.

    Gradients are those of training, with nothing drawn.
    """
    worst = 0.0
    modes = {True: model.training, False: model.evaluation}
    for training, program in modes.items():
        if not training and model.training is model.evaluation:
            continue
        apart = compared(program, model, eager, params, samples, training)
        most = tolerance(program, program.dtype)
        if max(apart) > most and program.dtype == "float32":
            # Rounding, or an error? In float64 it shows.
            wide = Eager(copy.deepcopy(eager.module).double(), eager.loss)
            apart64 = compared(program, model, wide, _wide(params), _wide(samples), training)
            if max(apart64) < tolerance(program, "float64"):
                continue
        worst = max(worst, *apart)
        _raise_if_apart(model, apart, most)
    return worst


def tolerance(program: Program, dtype: str) -> float:
    """How far a program may be from PyTorch, computed in this type."""
    rough = (ROUGH[name] for name in operators(program) & ROUGH.keys())
    return max(TOLERANCE[dtype], *rough, 0)


def _raise_if_apart(model: Translated, apart: tuple[float, float], most: float) -> None:
    outputs, grads = apart
    if not outputs <= most:
        raise ValueError(
            f"{model!r} gives other outputs in jax, apart by {outputs:.1e}; rounding "
            f"would be {most:.0e}. Please report it."
        )
    if not grads <= most:
        raise ValueError(
            f"{model!r} has another gradient in jax, apart by {grads:.1e}; rounding "
            f"would be {most:.0e}. For torch.no_grad() in forward, which torch.export "
            "does not see, use detach() or requires_grad_(False)."
        )


def compared(
    program: Program, model: Translated, eager: Eager, params: Tree, samples: Tree,
    training: bool,
) -> tuple[float, float]:  # fmt: skip
    """How far outputs, and in training gradients, are from PyTorch's, relatively."""
    import jax

    def loss(params, samples):
        outputs = program(params, several(samples["x"]))
        return model.losses(outputs, samples["y"]).mean(), outputs

    function = jax.value_and_grad(loss, has_aux=True) if training else loss
    wide = next(iter(params.values())).dtype == "float64"
    with jax.enable_x64(wide), _on_cpu(), jax.default_matmul_precision("highest"):
        found = run_once(function, params, samples)
    (value, outputs), grads = found if training else (found, {})
    with still():
        theirs, their_value, their_grads = eager.grad(params, samples, training)
    seen = _apart([*outputs, value], [*leaves(theirs), np.asarray(their_value)])
    return seen, _apart(list(grads.values()), [their_grads[name] for name in grads])


def leaves(outputs: Any) -> list[Any]:
    """The tensors of what a module gives."""
    import torch

    return [a for a in torch.utils._pytree.tree_leaves(outputs) if a is not None]


def _apart(ours: list[Any], theirs: list[Any]) -> float:
    pairs = [
        (np.asarray(a, float), np.asarray(getattr(b, "detach", lambda b=b: b)(), float))
        for a, b in zip(ours, theirs, strict=True)
    ]
    largest = max((np.abs(b).max(initial=0) for _, b in pairs), default=0)
    worst = 0.0
    for a, b in pairs:
        scale = max(np.abs(b).max(initial=0), SMALL * largest) or 1.0
        with np.errstate(invalid="ignore"):  # -inf - -inf: masked in both
            gap = np.abs(np.where(a == b, 0, a - b)).max(initial=0)
        worst = max(worst, float(gap / scale)) if gap == gap else np.inf
    return worst


def _wide(tree: Tree) -> Tree:
    import jax

    return jax.tree.map(lambda a: a.astype(float) if a.dtype.kind == "f" else a, tree)


def _on_cpu() -> Any:
    """Where float32 is computed in float32."""
    import jax

    try:
        return jax.default_device(jax.devices("cpu")[0])
    except RuntimeError:  # jax was told of other platforms alone
        return nullcontext()


def _length(samples: Tree) -> int:
    return len(several(samples["y"])[0])

"""Checks of a user's torch modules and samples, and conversions. Does not import jax."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from focusfl.core.tree import Tree
from focusfl.core.validation import check_finite, numeric, shown
from focusfl.problems.validation import check_no_loader

FLOATS = ("float32", "float64")


def check_module(module: Any, freeze_statistics: bool) -> str:
    """Return the type of a module's parameters, such as "float32".

    Raises:
        ValueError: If it is not a module, or cannot be trained.
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"module must be a torch.nn.Module; got {shown(module)}.")
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.lazy.LazyModuleMixin):
            raise ValueError(
                f"{name or 'the module'} is lazy: its parameters have no shape yet. "
                "Call the module once on a batch."
            )
        if _keeps_statistics(part) and not freeze_statistics:
            raise ValueError(
                f"{name or 'the module'} ({type(part).__name__}) keeps running "
                "statistics, which do not travel. Use GroupNorm, or "
                "freeze_statistics=True to normalise by those it has."
            )
    dtypes = {name: str(p.dtype)[6:] for name, p in module.named_parameters()}
    for name, dtype in dtypes.items():
        if dtype not in FLOATS:
            raise ValueError(f"parameter {name} must be of {' or '.join(FLOATS)}; got {dtype}.")
    if len(set(dtypes.values())) > 1:
        raise ValueError(
            "parameters must be of one type; got both float32 and float64. Use "
            "module.float() or module.double()."
        )
    if not trained(module):
        raise ValueError("module must have a parameter with requires_grad; got none.")
    return next(iter(dtypes.values()))


def set_mode(module: Any, training: bool) -> None:
    """Switch dropout and the like on or off, but leave running statistics as they are."""
    module.train(training)
    for part in module.modules():
        if _keeps_statistics(part):
            part.eval()


def _keeps_statistics(part: Any) -> bool:
    return getattr(part, "running_mean", None) is not None


def torch_params(module: Any, *, freeze_statistics: bool = False) -> dict[str, np.ndarray]:
    """Return the parameters of a module that are trained: the model of its problem.

    Args:
        module: a torch.nn.Module.
        freeze_statistics: as in `from_torch`.

    Returns:
        Arrays by the names of `named_parameters()`, without those that need no gradient.

    Raises:
        ValueError: If the module has no such parameters, or keeps running statistics.
    """
    check_module(module, freeze_statistics)
    return {name: leaf.detach().cpu().numpy().copy() for name, leaf in trained(module).items()}


def trained(module: Any) -> dict[str, Any]:
    """Return the parameters to train by name; one with several names goes by its first."""
    return {n: p for n, p in module.named_parameters() if p.requires_grad}


def aliases(module: Any) -> dict[str, str]:
    """Map every name of a parameter to train to the one that it goes by."""
    first = {id(p): name for name, p in trained(module).items()}
    every = module.named_parameters(remove_duplicate=False)
    return {name: first[id(p)] for name, p in every if id(p) in first}


def samples_of(who: str, samples: Any, dtype: str) -> Tree:
    """Return samples as arrays x and y; floats get the type of the module.

    Args:
        who: what messages call them.
        samples: a pair (inputs, targets), or a dict of x and y.
        dtype: type of the module's parameters.

    Raises:
        ValueError: If they are something else.
    """
    check_no_loader(who, samples)
    is_dict = isinstance(samples, Mapping)
    if is_dict and set(samples) == {"x", "y"}:
        samples = samples["x"], samples["y"]
    elif not isinstance(samples, tuple | list) or len(samples) != 2:
        got = ", ".join(map(str, samples)) if is_dict else shown(samples)
        raise ValueError(f"{who} must be (inputs, targets), or a dict of x and y; got {got}.")
    x, y = (_arrays(part, dtype) for part in samples)
    return {"x": x, "y": y}


def site_samples(who: str, value: Any, dtype: str) -> Tree:
    """Return one site's samples as arrays x and y.

    Raises:
        ValueError: Unless they are finite and all arrays have equally many samples.
    """
    samples, lengths = samples_of(who, value, dtype), set()
    for name, part in {"inputs": samples["x"], "targets": samples["y"]}.items():
        for array in several(part):
            numbers = numeric(f"{who}, {name}", array)
            check_finite(f"{who}, {name}", numbers, ("sample",) * (numbers.ndim > 0))
            lengths.add(len(numbers) if numbers.ndim else 0)
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(
            f"{who} must have samples along the first axis of its arrays, equally many of each; "
            f"got {sorted(lengths)}."
        )
    return samples


def _arrays(part: Any, dtype: str) -> Tree:
    if isinstance(part, tuple):  # several inputs
        return {str(i): _arrays(array, dtype) for i, array in enumerate(part)}
    if hasattr(part, "detach"):
        part = part.detach().cpu().numpy()
    array = np.asarray(part)
    return array.astype(dtype) if array.dtype.kind == "f" else array


def several(part: Tree) -> list[Any]:
    """List the arrays of inputs or of targets."""
    return [part[str(i)] for i in range(len(part))] if isinstance(part, dict) else [part]


def tensors(part: Tree, device: Any = None) -> Any:
    """Return inputs or targets as a tensor, or as a tuple of several."""
    import torch

    converted = tuple(
        a if torch.is_tensor(a) else torch.tensor(np.asarray(a), device=device)
        for a in several(part)
    )
    return converted if isinstance(part, dict) else converted[0]


def state_dict(module: Any, x: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters x and the rest of a module's state, for module.load_state_dict."""
    import torch

    known = trained(module)
    if not isinstance(x, Mapping) or set(x) != set(known):
        raise ValueError(
            f"x must have the module's parameters, {', '.join(list(known)[:4])}, ...; "
            f"got {', '.join(list(x)[:4]) if isinstance(x, Mapping) else shown(x)}."
        )
    new = {name: torch.tensor(np.asarray(x[name])) for name in known}
    out = {name: leaf.detach().clone() for name, leaf in module.state_dict().items()}
    return out | {name: new[first] for name, first in aliases(module).items()}

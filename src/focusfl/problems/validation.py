"""Checks of models, samples and functions that a user gives, before anything runs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_finite, check_one_of, numeric, shown
from focusfl.data import STREAMS

FLOATS = ("float16", "bfloat16", "float32", "float64")


def check_dtype(name: str, dtype: Any) -> None:
    """Raise ValueError unless this is a floating-point type, or the name of one."""
    got = getattr(dtype, "__name__", dtype)  # np.float32 will do as well as its name
    if not isinstance(got, str) or got not in FLOATS:
        raise ValueError(f"{name} must be one of {', '.join(FLOATS)}; got {got!r}.")


def check_options(
    batch_size: int | None, stream: str, dtype: str, compute_dtype: str | None
) -> None:
    """Raise ValueError unless these options of `from_loss` are in their ranges."""
    if batch_size is not None:
        check_count("batch_size", batch_size)
    check_one_of("stream", stream, STREAMS)
    check_dtype("dtype", dtype)
    if compute_dtype is not None:
        check_dtype("compute_dtype", compute_dtype)


def check_function(name: str, value: Any) -> None:
    """Raise ValueError unless value is a function that jax can trace."""
    check_called(name, value)
    if _of_torch(value) or not callable(value):
        raise ValueError(f"{name} must be a function{_instead(value)}.")


def check_called(name: str, value: Any) -> None:
    """Raise ValueError if value is a class where one of its objects is meant."""
    if isinstance(value, type):
        kind = value.__name__
        raise ValueError(
            f"{name} must be a function; got the class {kind}. Call it first: {kind}()."
        )


def check_no_loader(name: str, value: Any) -> None:
    """Raise ValueError if value is a DataLoader, and say how to make tensors of it."""
    if any(kind.__name__ == "DataLoader" for kind in type(value).__mro__):
        raise ValueError(
            f"{name} must be arrays or tensors; got a DataLoader, whose batches are "
            "drawn by PyTorch. Give all of its samples, x, y = map(torch.cat, "
            "zip(*loader)), and batch_size."
        )


def takes_key(loss_fn: Callable) -> bool:
    """Whether a loss has an argument `key`."""
    try:
        return "key" in inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):  # written in C: its signature is unknown
        return False


def arrays(name: str, value: Tree) -> Tree:
    """Return a tree with its leaves as NumPy arrays.

    Raises:
        ValueError: Unless there are leaves, and all of them finite numbers.
    """
    import jax

    check_no_loader(name, value)
    leaves, structure = jax.tree.flatten_with_path(value)
    if not leaves or _of_torch(value):
        raise ValueError(f"{name} must be arrays, or a tree of them{_instead(value)}.")
    checked = []
    for path, leaf in leaves:
        where = name + jax.tree_util.keystr(path)
        array = numeric(where, leaf)
        check_finite(where, array, ("row",) * (array.ndim > 0))
        if not array.size:
            raise ValueError(f"{where} must not be empty; got shape {array.shape}.")
        checked.append(array)
    return jax.tree.unflatten(structure, checked)


def everybody(client_data: Any, name: str = "client_data") -> list[Tree]:
    """Return the samples of all clients as arrays.

    Args:
        client_data: a list with a tree of arrays for each client, samples along the first axis.
        name: what messages call it.

    Raises:
        ValueError: If it is something else, or clients' arrays differ in names or in the shape of
            a sample.
    """
    check_no_loader(name, client_data)
    if not isinstance(client_data, Sequence | np.ndarray) or isinstance(client_data, str):
        raise ValueError(
            f"{name} must be a list with the samples of each client; got {shown(client_data)}."
        )
    if not len(client_data):
        raise ValueError(f"{name} must hold the data of at least one client.")
    of = "" if name == "client_data" else f" of {name}"
    clients = [_samples(f"client {i}{of}", samples) for i, samples in enumerate(client_data)]
    for i, samples in enumerate(clients):
        _check_alike(f"client {i}{of}", samples, f"client 0{of}", clients[0])
    return clients


def eval_sets(client_eval_data: Any, client_data: list[Tree]) -> list[Tree]:
    """Return a set of samples for each client, checked to be like those of `client_data`."""
    name = "client_eval_data"
    sets = everybody(client_eval_data, name)
    if len(sets) != len(client_data):
        raise ValueError(
            f"{name} must have a set of samples for each of {len(client_data)} "
            f"clients; got {len(sets)}."
        )
    _check_alike(f"client 0 of {name}", sets[0], "client_data", client_data[0])
    return sets


def _check_alike(who: str, samples: Tree, whose: str, model: Tree) -> None:
    """Raise ValueError unless samples have the names, shapes and kinds of others."""
    import jax

    structure: Any = jax.tree.structure(samples)
    if structure != jax.tree.structure(model):
        raise ValueError(
            f"{who} must have the same arrays as {whose}, {_names(model)}; got {_names(samples)}."
        )
    pairs = zip(jax.tree.leaves_with_path(samples), jax.tree.leaves(model), strict=True)
    for (path, leaf), other in pairs:
        if (leaf.shape[1:], leaf.dtype.kind) != (other.shape[1:], other.dtype.kind):
            raise ValueError(
                f"{who}, data{jax.tree_util.keystr(path)}: a sample must be of shape "
                f"{other.shape[1:]} and like {other.dtype}, as {whose}'s; got {leaf.shape[1:]} "
                f"of {leaf.dtype}."
            )


def _samples(who: str, value: Tree) -> Tree:
    """Return one client's samples as arrays of one length."""
    import jax

    check_no_loader(who, value)
    if not all(np.size(leaf) for leaf in jax.tree.leaves(value)):
        advice = "give it some samples" if "eval" in who else "leave it out"
        raise ValueError(f"{who} has no data; {advice}.")
    samples = arrays(f"{who}, data", value)
    for leaf in jax.tree.leaves(samples):
        if not leaf.ndim:
            raise ValueError(
                f"{who} must have arrays with samples along their first axis; got "
                f"{shown(leaf[()])}. Make an array of a list."
            )
    lengths = {len(leaf) for leaf in jax.tree.leaves(samples)}
    if len(lengths) > 1:
        raise ValueError(f"{who}: its arrays must have one length; got {sorted(lengths)}.")
    return samples


def check_loss(loss_fn: Callable, x: Tree, samples: Tree, what: str) -> None:
    """Raise ValueError unless a loss gives a value for each sample; nothing is computed."""
    import jax

    count = len(jax.tree.leaves(samples)[0])
    losses = _shapes("loss_fn", what, loss_fn, x, samples)
    if getattr(losses, "shape", None) != (count,):
        raise ValueError(
            f"loss_fn must give the loss of each sample, of shape ({count},) for "
            f"{count} samples of {what}; got {_form(losses)}. Leave mean or sum out: "
            "samples are weighed where batches are."
        )


def check_metrics(metrics_fn: Callable, x: Tree, samples: Tree, what: str) -> None:
    """Raise ValueError unless metrics are scalars by name; nothing is computed."""
    metrics = _shapes("metrics_fn", what, metrics_fn, x, samples)
    if not isinstance(metrics, Mapping) or not metrics:
        raise ValueError(f"metrics_fn must give a dict of numbers by name; got {_form(metrics)}.")
    for name, value in metrics.items():
        if not isinstance(name, str) or getattr(value, "shape", None) != ():
            raise ValueError(
                f"metrics_fn must give a single number for {name!r}; got "
                f"{_form(value)}. Name each number of several."
            )


def check_losses(
    each: Callable[[Tree], np.ndarray], pooled: Tree, lengths: list[int], size: int
) -> None:
    """Raise ValueError if a sample with the smallest or the largest whole number has no loss.

    If any label lies outside the classes, one of these does. All samples would take long.
    """
    import jax

    ends = {
        int(find(leaf)) // (leaf.size // len(leaf))
        for leaf in jax.tree.leaves(pooled)
        for find in (np.argmin, np.argmax)
        if leaf.dtype.kind in "iu"
    }
    batches = np.resize(sorted(ends), (-(-len(ends) // size), size))
    for places in batches.astype(int):
        values = each(jax.tree.map(lambda a, at=places: a[at], pooled))
        if not np.isfinite(values).all():
            wrong = int(np.argmin(np.isfinite(values)))
            starts = np.cumsum([0, *lengths])
            client = int(np.searchsorted(starts, places[wrong], "right")) - 1
            raise ValueError(
                f"loss_fn must be finite at params; got {values[wrong]} for sample "
                f"{places[wrong] - starts[client]} of client {client}. Are all labels "
                "those of a class?"
            )


def check_augment(augment: Callable, samples: Tree) -> None:
    """Raise ValueError unless augmentation keeps names and shapes; nothing is computed."""
    import jax

    result = _shapes("augment", "a batch", augment, jax.random.key(0), samples)
    before, after = (jax.tree.map(lambda leaf: (*leaf.shape,), tree) for tree in (samples, result))
    if before != after:
        raise ValueError(
            f"augment must keep names and shapes; got {_form(result)} for {_form(samples)}."
        )


def shapes(samples: Tree, count: int | None = None) -> Tree:
    """Return the shapes and types that a compiled function sees of samples, or of `count`."""
    import jax

    def shape(leaf):
        length = leaf.shape[:1] if count is None else (count,)
        kind = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct((*length, *leaf.shape[1:]), kind)

    return jax.tree.map(shape, samples)


def _shapes(name: str, what: str, function: Callable, *args: Tree) -> Any:
    """Return the shapes of what a user's function gives; nothing is computed."""
    import jax

    try:
        return jax.eval_shape(function, *args)
    except Exception as error:  # the user's own code: anything can happen
        reason = (str(error).splitlines() or [""])[0].rstrip(".")[:200]
        raise ValueError(f"{name} fails on {what}: {type(error).__name__}: {reason}.") from error


def _form(value: Any) -> str:
    """Describe a value by its shape, or by the names of its arrays."""
    import jax

    leaves = jax.tree.leaves(value)
    if len(leaves) == 1 and leaves[0] is value:
        return f"shape {(*value.shape,)}" if hasattr(value, "shape") else shown(value)
    return f"{type(value).__name__} of {_names(value)}"


def _names(samples: Tree) -> str:
    import jax

    names = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, _ in jax.tree.leaves_with_path(samples)
    ]
    return ", ".join(names[:8]) + ", ..." * (len(names) > 8) or "none"


def _of_torch(value: Any) -> bool:
    kinds = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    return "torch" in kinds and not hasattr(value, "__array__")


def _instead(value: Any) -> str:
    if _of_torch(value):
        return f" of jax; got {type(value).__name__} of PyTorch. Use focusfl.problems.from_torch"
    return f"; got {shown(value)}"

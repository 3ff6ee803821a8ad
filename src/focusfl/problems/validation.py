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


def arrays(name: str, given: Tree) -> Tree:
    """Return a tree with its leaves as NumPy arrays.

    Raises:
        ValueError: Unless there are leaves, and all of them finite numbers.
    """
    import jax

    check_no_loader(name, given)

    found, structure = jax.tree.flatten_with_path(given)
    if not found or _of_torch(given):
        raise ValueError(f"{name} must be arrays, or a tree of them{_instead(given)}.")
    leaves = []
    for path, leaf in found:
        called = name + jax.tree_util.keystr(path)
        leaves.append(numeric(called, leaf))
        check_finite(called, leaves[-1], ("row",) * (np.ndim(leaf) > 0))
        if not leaves[-1].size:
            raise ValueError(f"{called} must not be empty; got shape {np.shape(leaf)}.")
    return jax.tree.unflatten(structure, leaves)


def everybody(client_data: Any) -> list[Tree]:
    """Return the samples of all clients as arrays, checked to be alike in names and shapes."""
    return _sets("client_data", client_data)


def eval_sets(client_eval_data: Any, client_data: list[Tree]) -> list[Tree]:
    """Return a set of samples for each client, checked to be like those of `client_data`."""
    name = "client_eval_data"
    if len(_listed(name, client_eval_data)) != len(client_data):
        raise ValueError(
            f"{name} must have a set of samples for each of {len(client_data)} "
            f"clients; got {len(client_eval_data)}."
        )
    return _sets(name, client_eval_data, client_data[0])


def _listed(name: str, given: Any) -> Any:
    """Return a list with an entry for each client; raise ValueError if it is something else."""
    check_no_loader(name, given)
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
        raise ValueError(
            f"{name} must be a list with the samples of each client; got {shown(given)}."
        )
    if not len(given):
        raise ValueError(f"{name} must hold the data of at least one client.")
    return given


def _sets(name: str, given: Any, like: Tree = None) -> list[Tree]:
    """Return the samples of a list of clients, checked against each other or `like`."""
    import jax

    of = "" if like is None else f" of {name}"
    listed = _listed(name, given)
    checked = [_samples(f"client {i}{of}", samples) for i, samples in enumerate(listed)]
    model, whose = (checked[0], "client 0") if like is None else (like, "client_data")
    first: Any = jax.tree.structure(model)
    for i, samples in enumerate(checked):
        if jax.tree.structure(samples) != first:
            raise ValueError(
                f"client {i}{of} must have the same arrays as {whose}, "
                f"{_names(model)}; got {_names(samples)}."
            )
        for (path, leaf), other in zip(
            jax.tree.leaves_with_path(samples), jax.tree.leaves(model), strict=True
        ):
            if (leaf.shape[1:], leaf.dtype.kind) != (other.shape[1:], other.dtype.kind):
                raise ValueError(
                    f"client {i}{of}, data{jax.tree_util.keystr(path)}: a sample must "
                    f"be of shape {other.shape[1:]} and like {other.dtype}, as "
                    f"{whose}'s; got {leaf.shape[1:]} of {leaf.dtype}."
                )
    return checked


def _samples(who: str, given: Tree) -> Tree:
    import jax

    check_no_loader(who, given)

    if not all(np.size(leaf) for leaf in jax.tree.leaves(given)):
        advice = "give it some samples" if "eval" in who else "leave it out"
        raise ValueError(f"{who} has no data; {advice}.")
    samples = arrays(f"{who}, data", given)
    lengths = set()
    for leaf in jax.tree.leaves(samples):
        if not leaf.ndim:
            raise ValueError(
                f"{who} must have arrays with samples along their first axis; got "
                f"{shown(leaf[()])}. Make an array of a list."
            )
        lengths.add(len(leaf))
    if len(lengths) > 1:
        raise ValueError(f"{who}: its arrays must have one length; got {sorted(lengths)}.")
    return samples


def check_loss(loss_fn: Callable, x: Tree, samples: Tree, what: str) -> None:
    """Raise ValueError unless a loss gives a value for each sample; nothing is computed."""
    import jax

    count = len(jax.tree.leaves(samples)[0])
    found = _shapes("loss_fn", what, loss_fn, x, samples)
    shape = getattr(found, "shape", None)
    if shape != (count,):
        raise ValueError(
            f"loss_fn must give the loss of each sample, of shape ({count},) for "
            f"{count} samples of {what}; got {_form(found)}. Leave mean or sum out: "
            "samples are weighed where batches are."
        )


def check_metrics(metrics_fn: Callable, x: Tree, samples: Tree, what: str) -> None:
    """Raise ValueError unless metrics are scalars by name; nothing is computed."""
    found = _shapes("metrics_fn", what, metrics_fn, x, samples)
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"metrics_fn must give a dict of numbers by name; got {_form(found)}.")
    for name, value in found.items():
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

    found = _shapes("augment", "a batch", augment, jax.random.key(0), samples)
    asked, got = (jax.tree.map(lambda leaf: (*leaf.shape,), tree) for tree in (samples, found))
    if asked != got:
        raise ValueError(
            f"augment must keep names and shapes; got {_form(found)} for {_form(samples)}."
        )


def shapes(samples: Tree, count: int | None = None) -> Tree:
    """Return the shapes and types that a compiled function sees of samples, or of `count`."""
    import jax

    def shape(leaf):
        length = leaf.shape[:1] if count is None else (count,)
        kind = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct((*length, *leaf.shape[1:]), kind)

    return jax.tree.map(shape, samples)


def _shapes(name: str, what: str, function: Callable, *given: Tree) -> Any:
    import jax

    try:
        return jax.eval_shape(function, *given)
    except Exception as error:  # the user's own code: anything can happen
        reason = (str(error).splitlines() or [""])[0].rstrip(".")[:200]
        raise ValueError(f"{name} fails on {what}: {type(error).__name__}: {reason}.") from error


def _form(found: Any) -> str:
    import jax

    leaves = jax.tree.leaves(found)
    if len(leaves) == 1 and leaves[0] is found:
        return f"shape {(*found.shape,)}" if hasattr(found, "shape") else shown(found)
    return f"{type(found).__name__} of {_names(found)}"


def _names(samples: Tree) -> str:
    import jax

    found = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, _ in jax.tree.leaves_with_path(samples)
    ]
    return ", ".join(found[:8]) + ", ..." * (len(found) > 8) or "none"


def _of_torch(value: Any) -> bool:
    kinds = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    return "torch" in kinds and not hasattr(value, "__array__")


def _instead(value: Any) -> str:
    if _of_torch(value):
        return f" of jax; got {type(value).__name__} of PyTorch. Use focusfl.problems.from_torch"
    return f"; got {shown(value)}"

"""Problems of Flax and Equinox models, whose parameters become nested dicts.

The user's `loss_fn(model, samples)` and `metrics_fn(model, samples)` call the model as
anywhere else. Only parameters are trained: a model that changes other state when it is
called, as batch normalisation does, is refused where that can be seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from focusfl.core.extras import import_package
from focusfl.core.tree import Tree
from focusfl.problems.loss import LossFn, LossProblem, MetricsFn, from_loss


@dataclass(frozen=True)
class Calls:
    """A function of a model, called with the nested dicts of its parameters instead."""

    function: Callable[[Any, Tree], Any]
    rebuild: Callable[[Tree], Any]

    def __call__(self, x: Tree, samples: Tree) -> Any:
        return self.function(self.rebuild(x), samples)

    @property
    def each(self) -> "Calls | None":
        """The same for each sample, if the function is a `PerSample`; else None."""
        each = getattr(self.function, "each", None)
        return each and Calls(each, self.rebuild)


def from_flax(
    module: Any,
    loss_fn: LossFn,
    client_data: Sequence[Tree],
    *,
    params: Tree | None = None,
    metrics_fn: MetricsFn | None = None,
    **options: Any,
) -> LossProblem:
    """Make a problem of a Flax model: an nnx module, or a linen module and its `params`.

    Args:
        module: a flax.nnx.Module or a flax.linen.Module.
        loss_fn: (module, samples) -> the loss of each sample, (samples,); for linen, the
            first argument is a function that applies the module.
        client_data: for each client a tree of arrays with samples along the first axis.
        params: for linen, what module.init(...)["params"] returned.
        metrics_fn: (module, samples) -> a dict of scalars; None: the mean loss.
        options: of `from_loss`; batch_size and eval_data are required.

    Raises:
        ValueError: If the module has running statistics, or is not of Flax.
    """
    nnx, linen = import_package("flax.nnx"), import_package("flax.linen")
    if isinstance(module, nnx.Module):
        graph, state, running, rest = nnx.split(module, nnx.Param, nnx.BatchStat, ...)
        if running:
            raise ValueError(
                "the module must have no state but its parameters; got running "
                "statistics. Use nnx.LayerNorm or nnx.GroupNorm for nnx.BatchNorm."
            )
        params, back = _dicts(nnx.to_pure_dict(state))

        def rebuild(x):
            return nnx.merge(graph, back(x), running, rest)

    elif isinstance(module, linen.Module):
        if params is None:
            raise ValueError(
                "a linen module must come with params; got none. Use "
                'params=module.init(key, x)["params"].'
            )
        params, _ = _dicts(params)

        def rebuild(x):
            return lambda *args, **kwargs: module.apply({"params": x}, *args, **kwargs)

    else:
        raise ValueError(f"module must be a flax.nnx.Module or flax.linen.Module; got {module!r}.")
    return _problem(rebuild, params, loss_fn, client_data, metrics_fn, options)


def from_equinox(
    model: Any,
    loss_fn: LossFn,
    client_data: Sequence[Tree],
    *,
    metrics_fn: MetricsFn | None = None,
    **options: Any,
) -> LossProblem:
    """Make a problem of an Equinox model.

    Its arrays of floating-point numbers are trained; everything else stays as it is.

    Args:
        model: an equinox.Module.
        loss_fn: (model, samples) -> the loss of each sample, (samples,).
        client_data: for each client a tree of arrays with samples along the first axis.
        metrics_fn: (model, samples) -> a dict of scalars; None: the mean loss.
        options: of `from_loss`; batch_size and eval_data are required.

    Raises:
        ValueError: If the model is not an equinox.Module.
    """
    eqx = import_package("equinox")
    if not isinstance(model, eqx.Module):
        raise ValueError(f"model must be an equinox.Module; got {model!r}.")
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    params, back = _dicts(arrays)

    def rebuild(x):
        return eqx.combine(back(x), rest)

    return _problem(rebuild, params, loss_fn, client_data, metrics_fn, options)


def rebuilt(problem: LossProblem, x: Tree) -> Any:
    """Build the user's model with the parameters of a result.

    Args:
        problem: of `from_flax` or `from_equinox`.
        x: parameters, such as `Result.x`.

    Returns:
        A model like the user's; for linen, a function that applies the module.

    Raises:
        ValueError: If the problem comes from elsewhere.
    """
    calls = problem.mean_loss.loss_fn
    if not isinstance(calls, Calls):
        raise ValueError("problem must come from from_flax or from_equinox.")
    return calls.rebuild(x)


def _problem(rebuild, params, loss_fn, client_data, metrics_fn, options) -> LossProblem:
    metrics = metrics_fn and Calls(metrics_fn, rebuild)
    loss = Calls(loss_fn, rebuild)
    return from_loss(loss, params, client_data, metrics_fn=metrics, **options)


def _dicts(tree: Tree) -> tuple[Tree, Callable[[Tree], Tree]]:
    """Return a tree of jax as nested dicts with text for keys, and a function that undoes it."""
    import jax

    leaves, structure = jax.tree.flatten_with_path(tree)
    paths = [[jax.tree_util.keystr((key,), simple=True) for key in path] for path, _ in leaves]
    nested: dict = {}
    for (*above, name), (_, leaf) in zip(paths, leaves, strict=True):
        reduce(lambda d, key: d.setdefault(key, {}), above, nested)[name] = leaf

    def back(x):
        return jax.tree.unflatten(structure, [reduce(getitem, p, x) for p in paths])

    return nested, back

"""Models of Flax and Equinox as problems. Inside they are plain nested dicts.

The user's `loss_fn(model, samples)` and `metrics_fn(model, samples)` call the model as
they would anywhere else. Only parameters are trained: a model that changes other state
while it is called, as batch normalisation does, is refused where that can be seen.
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
    """A function of a model, as one of the dicts that its parameters are kept in."""

    function: Callable[[Any, Tree], Any]
    rebuild: Callable[[Tree], Any]

    def __call__(self, x: Tree, samples: Tree) -> Any:
        return self.function(self.rebuild(x), samples)

    @property
    def each(self) -> "Calls | None":
        """The same of each sample, where the function is a `PerSample`."""
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
    """Make a problem of an nnx module, or of a linen module and its `params`.

    Args:
        module: an nnx module, or a linen module.
        loss_fn: (module, samples) -> the loss of each sample; linen: its apply.
        client_data: one tree of arrays per client, samples along the first axis.
        params: of a linen module, what module.init(...)["params"] gave.
        metrics_fn: (module, samples) -> scalars, for evaluation.
        options: of `from_loss`; batch_size and eval_data must be given.

    Raises:
        ValueError: If the module has running statistics, or is none of Flax.
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
    """Make a problem of an Equinox model; options are those of `from_loss`.

    Its arrays of floating-point numbers are trained; all else stays as it is.

    Args:
        model: an equinox.Module.
        loss_fn: (model, samples) -> the loss of each sample.
        client_data: one tree of arrays per client, samples along the first axis.
        metrics_fn: (model, samples) -> scalars, for evaluation.
        options: of `from_loss`; batch_size and eval_data must be given.

    Raises:
        ValueError: If the model is none of Equinox.
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
    """Give the user's model with the parameters of a result; for linen, its apply."""
    calls = problem.mean_loss.loss_fn
    if not isinstance(calls, Calls):
        raise ValueError("problem must come from from_flax or from_equinox.")
    return calls.rebuild(x)


def _problem(rebuild, params, loss_fn, client_data, metrics_fn, options) -> LossProblem:
    metrics = metrics_fn and Calls(metrics_fn, rebuild)
    loss = Calls(loss_fn, rebuild)
    return from_loss(loss, params, client_data, metrics_fn=metrics, **options)


def _dicts(tree: Tree) -> tuple[Tree, Callable[[Tree], Tree]]:
    """Write any tree of jax as nested dicts with text for keys; and the way back."""
    import jax

    found, structure = jax.tree.flatten_with_path(tree)
    paths = [[jax.tree_util.keystr((key,), simple=True) for key in path] for path, _ in found]
    nested: dict = {}
    for (*above, name), (_, leaf) in zip(paths, found, strict=True):
        reduce(lambda d, key: d.setdefault(key, {}), above, nested)[name] = leaf

    def back(x):
        return jax.tree.unflatten(structure, [reduce(getitem, p, x) for p in paths])

    return nested, back

"""Gradients of which no record, or no client, can be more than a part."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from focusfl.core import Batch, tree
from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.problems.logistic import LogisticLoss
from focusfl.problems.loss import MeanLoss
from focusfl.problems.problem import Objective

LEVELS = "record", "client"


def clipped(
    objective: Objective, level: str, clip: float, x: Tree, data: Tree, batch: Any
) -> tuple[Tree, Any]:
    """A client's gradient, cut, and the most that one unit can change it by, in norm.

    Of a client it is scaled down to a norm of at most `clip`; of a record that holds
    for its own part, before the mean over records is taken.
    """
    if level == "client":
        return _cut(objective.grad(x, data, batch), clip), clip
    if isinstance(objective, LogisticLoss):
        return _of_rows(objective, clip, x, data)
    if not isinstance(objective, MeanLoss):
        raise TypeError(objective)  # `check_level` has refused it
    import jax

    first = jax.tree.leaves(x)[0]
    with jax.enable_x64(first.dtype == "float64"):
        if isinstance(first, np.ndarray | np.generic):
            found = _compiled(objective, clip)(x, data, batch)
            return jax.tree.map(np.asarray, found)
        return _of_samples(objective, clip, x, data, batch)


def check_level(objective: Objective, level: str) -> None:
    """Raise ValueError unless gradients of this objective can be cut so."""
    if level == "client":
        return
    if not isinstance(objective, LogisticLoss | MeanLoss):
        raise ValueError(
            'level="record" needs a gradient that is a mean over records, as that of '
            "problems.Logistic and problems.from_loss; the objective here is "
            f'{type(objective).__name__}. level="client" cuts any.'
        )
    if isinstance(objective, MeanLoss) and objective.stream == "with_replacement":
        raise ValueError(
            'level="record" needs a stream in which a record is in a batch once: '
            '"epochs" or "fixed_order"; got "with_replacement".'
        )


def _cut(grad: Tree, clip: float) -> Tree:
    """Scale a tree down to a norm of at most `clip`; infinite or NaN, to nothing.

    A unit that could make the whole infinite would be seen by everybody.
    """
    square = tree.dot(grad, grad)
    xp = square.__array_namespace__()
    fine = xp.isfinite(square)
    factor = clip / xp.maximum(xp.where(fine, square, 1.0) ** 0.5, clip)
    return tree.map(lambda g: xp.where(fine, factor * g, 0.0).astype(g.dtype), grad)


def _of_rows(objective: LogisticLoss, clip: float, x: Tree, data: Tree) -> tuple[Tree, Any]:
    """A row's part is a multiple of the row: its norm needs no gradient of its own.

    The penalty looks at no row, and is not cut.
    """
    slopes, A = objective._slopes(x, data), data["A"]
    xp = slopes.__array_namespace__()
    weight, norms = abs(data["wb"]), (A * A).sum(-1) ** 0.5
    most = weight * clip / xp.maximum(norms, 1e-300 if A.dtype.itemsize > 4 else 1e-30)
    # A padded row has a weight of 0, and so has what it may be.
    slopes = xp.clip(slopes, -most, most)
    return slopes @ A + objective.penalty * x, clip * weight.max()


def _of_samples(
    objective: MeanLoss, clip: float, x: Tree, data: Tree, batch: Any
) -> tuple[Tree, Any]:
    """Sample by sample: each is a batch of its own, and cannot touch another's part."""
    import jax
    import jax.numpy as jnp

    places, weights = objective.pick(batch, data["length"])
    samples = jax.tree.map(lambda a: a[places], data["samples"])

    def alone(place: Any, weight: Any, sample: Tree) -> Tree:
        one = jax.tree.map(lambda a: a[None], sample)
        own = Batch(keys.fold(batch.key, place), batch.number)
        if objective.augment is not None:
            one = objective.augment(keys.fold(own.key, own.number, 1), one)

        def loss(x: Tree) -> Any:
            key = {"key": keys.fold(own.key, own.number, 2)} if objective.draws else {}
            model = objective._lower(x)
            return objective._fast(objective.loss_fn)(model, one, **key)[0]

        return tree.scale(weight, _cut(jax.grad(loss)(x), clip))

    parts = jax.vmap(alone)(places, weights, samples)
    size, length = objective.batch_size, data["length"]
    most = clip * -(-length // size) / (1.0 * length)
    return jax.tree.map(lambda a: a.sum(0), parts), jnp.asarray(most)


@lru_cache(maxsize=16)
def _compiled(objective: MeanLoss, clip: float) -> Callable:
    import jax

    return jax.jit(partial(_of_samples, objective, clip))

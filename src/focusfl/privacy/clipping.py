"""Clip gradients, so that no record, or no client, changes them by more than a bound."""

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


def clipped_gradient(
    objective: Objective, level: str, clip: float, x: Tree, data: Tree, batch: Any
) -> tuple[Tree, Any]:
    """Clip a client's gradient; give it and its sensitivity.

    The sensitivity is the largest norm by which one unit can change the result. At level
    "client" the gradient is scaled down to a norm of at most `clip`; at level "record"
    each record's part is, before the mean over records is taken.
    """
    if level == "client":
        return clip_norm(objective.grad(x, data, batch), clip), clip
    if isinstance(objective, LogisticLoss):
        return _clip_rows(objective, clip, x, data)
    if not isinstance(objective, MeanLoss):
        raise TypeError(objective)  # `check_level` has refused it
    import jax

    first = jax.tree.leaves(x)[0]
    with jax.enable_x64(first.dtype == "float64"):
        if isinstance(first, np.ndarray | np.generic):
            return jax.tree.map(np.asarray, _compiled(objective, clip)(x, data, batch))
        return _clip_samples(objective, clip, x, data, batch)


def check_level(objective: Objective, level: str) -> None:
    """Raise ValueError unless gradients of this objective can be clipped at this level."""
    if level == "client":
        return
    if not isinstance(objective, LogisticLoss | MeanLoss):
        raise ValueError(
            'level="record" needs a gradient that is a mean over records, as that of '
            "problems.Logistic and problems.from_loss; the objective here is "
            f'{type(objective).__name__}. level="client" clips any.'
        )
    if isinstance(objective, MeanLoss) and objective.stream == "with_replacement":
        raise ValueError(
            'level="record" needs a stream in which a record is in a batch once: '
            '"epochs" or "fixed_order"; got "with_replacement".'
        )


def clip_norm(grad: Tree, clip: float) -> Tree:
    """Scale a tree down to a norm of at most `clip`.

    A tree that is not finite becomes 0: a unit that could make the sum infinite would be
    seen by everybody.
    """
    square = tree.dot(grad, grad)
    xp = square.__array_namespace__()
    finite = xp.isfinite(square)
    factor = clip / xp.maximum(xp.where(finite, square, 1.0) ** 0.5, clip)
    return tree.map(lambda g: xp.where(finite, factor * g, 0.0).astype(g.dtype), grad)


def _clip_rows(objective: LogisticLoss, clip: float, x: Tree, data: Tree) -> tuple[Tree, Any]:
    """Clip each row's part, a multiple of the row: its norm needs no gradient of its own.

    The penalty depends on no row, and is not clipped.
    """
    slopes, A = objective._slopes(x, data), data["A"]
    xp = slopes.__array_namespace__()
    weight, norms = abs(data["wb"]), (A * A).sum(-1) ** 0.5
    # A padded row has weight 0, and with it a bound of 0.
    bound = weight * clip / xp.maximum(norms, 1e-300 if A.dtype.itemsize > 4 else 1e-30)
    slopes = xp.clip(slopes, -bound, bound)
    return slopes @ A + objective.penalty * x, clip * weight.max()


def _clip_samples(
    objective: MeanLoss, clip: float, x: Tree, data: Tree, batch: Any
) -> tuple[Tree, Any]:
    """Clip each sample's gradient; each is a batch of its own and touches no other's part."""
    import jax
    import jax.numpy as jnp

    places, weights = objective.pick(batch, data["length"])
    samples = jax.tree.map(lambda a: a[places], data["samples"])

    def clipped_part(place: Any, weight: Any, sample: Tree) -> Tree:
        alone = jax.tree.map(lambda a: a[None], sample)
        own = Batch(keys.fold(batch.key, place), batch.number)
        if objective.augment is not None:
            alone = objective.augment(keys.fold(own.key, own.number, 1), alone)

        def loss(x: Tree) -> Any:
            key = {"key": keys.fold(own.key, own.number, 2)} if objective.draws else {}
            model = objective._lower(x)
            return objective._fast(objective.loss_fn)(model, alone, **key)[0]

        return tree.scale(weight, clip_norm(jax.grad(loss)(x), clip))

    parts = jax.vmap(clipped_part)(places, weights, samples)
    size, length = objective.batch_size, data["length"]
    sensitivity = clip * -(-length // size) / (1.0 * length)
    return jax.tree.map(lambda a: a.sum(0), parts), jnp.asarray(sensitivity)


@lru_cache(maxsize=16)
def _compiled(objective: MeanLoss, clip: float) -> Callable:
    import jax

    return jax.jit(partial(_clip_samples, objective, clip))

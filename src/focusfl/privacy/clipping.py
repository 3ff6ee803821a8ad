"""Clip gradients, so that no record, or no client, changes them by more than a bound."""

from typing import Any

from focusfl.core import random as keys
from focusfl.core import tree
from focusfl.core.tree import Tree
from focusfl.problems.logistic import LogisticLoss
from focusfl.problems.loss import MeanLoss, in_library_of
from focusfl.problems.problem import Objective

LEVELS = "record", "client"


def clipped_gradient(
    objective: Objective, level: str, clip: float, x: Tree, data: Tree, batch: Any
) -> tuple[Tree, Any]:
    """Compute a client's gradient, clipped, and its sensitivity.

    The sensitivity is the largest norm by which one unit can change the gradient. At level
    "client" the gradient is scaled down to a norm of at most `clip`; at level "record" the
    gradient of each record is, before the mean over records.

    Args:
        objective: without noise; `check_level` has accepted it.
        level: "record" or "client".
        clip: the largest norm of a unit's gradient.
        x: the model.
        data: of one client.
        batch: a `Batch`, or None if the objective is not stochastic.
    """
    if level == "client":
        return clip_norm(objective.grad(x, data, batch), clip), clip
    if isinstance(objective, LogisticLoss):
        return _clip_rows(objective, clip, x, data)
    return in_library_of(x, _clip_samples, (objective, clip), data, batch)


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

    A tree that is not finite becomes 0, as a unit that makes the sum infinite would be
    visible to everybody.
    """
    square = tree.dot(grad, grad)
    xp = square.__array_namespace__()
    finite = xp.isfinite(square)
    factor = clip / xp.maximum(xp.where(finite, square, 1.0) ** 0.5, clip)
    return tree.map(lambda g: xp.where(finite, factor * g, 0.0).astype(g.dtype), grad)


def _clip_rows(objective: LogisticLoss, clip: float, x: Tree, data: Tree) -> tuple[Tree, Any]:
    """Clip the gradient of each row, which is a multiple of the row.

    The penalty does not depend on rows, and is not clipped.
    """
    slopes, A = objective.slopes(x, data), data["A"]
    xp = slopes.__array_namespace__()
    weight, norms = abs(data["wb"]), (A * A).sum(-1) ** 0.5
    # A padded row has weight 0, and with it a bound of 0.
    bound = weight * clip / xp.maximum(norms, 1e-300 if A.dtype.itemsize > 4 else 1e-30)
    slopes = xp.clip(slopes, -bound, bound)
    return slopes @ A + objective.penalty * x, clip * weight.max()


def _clip_samples(
    objective: MeanLoss, clip: float, x: Tree, data: Tree, batch: Any
) -> tuple[Tree, Any]:
    """Clip the gradient of each sample, computed as a batch of that sample alone."""
    import jax
    import jax.numpy as jnp

    places, weights = objective.pick(batch, data["length"])
    samples = jax.tree.map(lambda a: a[places], data["samples"])

    def clipped_part(place: Any, weight: Any, sample: Tree) -> Tree:
        alone = jax.tree.map(lambda a: a[None], sample)
        key, number = keys.fold(batch.key, place), batch.number
        if objective.augment is not None:
            alone = objective.augment(keys.fold(key, number, 1), alone)

        def loss(x: Tree) -> Any:
            draws = {"key": keys.fold(key, number, 2)} if objective.draws else {}
            model = objective.lower(x)
            return objective.fast(objective.loss_fn)(model, alone, **draws)[0]

        return tree.scale(weight, clip_norm(jax.grad(loss)(x), clip))

    parts = jax.vmap(clipped_part)(places, weights, samples)
    size, length = objective.batch_size, data["length"]
    sensitivity = clip * -(-length // size) / (1.0 * length)
    return jax.tree.map(lambda a: a.sum(0), parts), jnp.asarray(sensitivity)

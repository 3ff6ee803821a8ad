"""Clip gradients, so that no record, or no client, changes them by more than a bound."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from focusfl.core import random as keys
from focusfl.core import tree
from focusfl.core.tree import Tree
from focusfl.problems.logistic import LogisticLoss
from focusfl.problems.loss import MeanLoss, in_library_of
from focusfl.problems.problem import Objective

LEVELS = "record", "client"
BLOCK = 1 << 23  # numbers in a block of units' gradients, if that is more than one gradient


def clipped_gradient(
    objective: Objective, level: str, clip: float, x: Tree, data: Tree, batch: Any
) -> tuple[Tree, Any]:
    """Compute a client's gradient, clipped, and its sensitivity.

    At level "client" the gradient is scaled down to a norm of at most `clip`; at level
    "record" the gradient of each record is, before the mean over records.

    Args:
        objective: without noise; `check_level` has accepted it.
        level: "record" or "client".
        clip: the largest norm of a unit's gradient.
        x: the model.
        data: of one client.
        batch: a `Batch`, or None if the objective is not stochastic.
    """
    most = sensitivity(objective, level, clip, data)
    if level == "client":
        return clip_norm(objective.grad(x, data, batch), clip), most
    if isinstance(objective, LogisticLoss):
        return _clip_rows(objective, clip, x, data), most
    return in_library_of(x, _clip_samples, (objective, clip), data, batch), most


def sensitivity(objective: Objective, level: str, clip: float, data: Tree) -> Any:
    """Give the largest norm by which one unit can change a gradient, clipped."""
    if level == "client":
        return clip
    if isinstance(objective, LogisticLoss):
        return clip * abs(data["wb"]).max()
    length, size = data["length"], cast(MeanLoss, objective).batch_size
    return clip * -(-length // size) / (1.0 * length)


def contributions(
    objective: Objective, level: str, clip: float, x: Tree, data: Tree, batch: Any
) -> Iterator[tuple[Float[np.ndarray, "units d"], Float[np.ndarray, " units"]]]:
    """Compute the part of each unit in a client's gradient, before clipping.

    Arguments are as for `clipped_gradient`. A penalty, which depends on no record, is left out
    at level "record".

    Yields:
        Blocks of parts, one in a row, and the norm to which each is to be clipped.
    """
    if level == "client":
        yield _as_rows(x, objective.grad(x, data, batch), 1), np.array([clip], float)
    elif isinstance(objective, LogisticLoss):
        slopes, A, size = objective.slopes(x, data), data["A"], _block(x)
        for block in (slice(k, k + size) for k in range(0, len(A), size)):
            yield slopes[block, None] * A[block], clip * abs(data["wb"][block])
    else:
        whole = cast(MeanLoss, objective).batch_size
        size = min(_block(x), whole)
        for first in range(0, whole, size):
            static, place = (objective, size), np.int32(first)
            grads, weights = in_library_of(x, _sample_gradients, static, data, batch, place)
            weights = np.asarray(weights, float)
            yield weights[:, None] * _as_rows(x, grads, size), clip * weights


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


def _clip_rows(objective: LogisticLoss, clip: float, x: Tree, data: Tree) -> Tree:
    """Clip the gradient of each row, which is a multiple of the row.

    The penalty does not depend on rows, and is not clipped.
    """
    slopes, A = objective.slopes(x, data), data["A"]
    xp = slopes.__array_namespace__()
    weight, norms = abs(data["wb"]), (A * A).sum(-1) ** 0.5
    # A padded row has weight 0, and with it a bound of 0.
    bound = weight * clip / xp.maximum(norms, 1e-300 if A.dtype.itemsize > 4 else 1e-30)
    slopes = xp.clip(slopes, -bound, bound)
    return slopes @ A + objective.penalty * x


def _clip_samples(objective: MeanLoss, clip: float, x: Tree, data: Tree, batch: Any) -> Tree:
    """Clip the gradient of each sample, computed as a batch of that sample alone."""
    import jax

    def clipped_part(place: Any, weight: Any, sample: Tree) -> Tree:
        grad = _sample_gradient(objective, x, batch, place, sample)
        return tree.scale(weight, clip_norm(grad, clip))

    places, weights = objective.pick(batch, data["length"])
    samples = jax.tree.map(lambda a: a[places], data["samples"])
    parts = jax.vmap(clipped_part)(places, weights, samples)
    return jax.tree.map(lambda a: a.sum(0), parts)


def _sample_gradients(
    objective: MeanLoss, size: int, x: Tree, data: Tree, batch: Any, first: Any
) -> tuple[Tree, Any]:
    """Compute the gradients and weights of `size` samples of a batch, from `first` on.

    Past the end of the batch, weights are 0.
    """
    import jax
    import jax.numpy as jnp

    places, weights = objective.pick(batch, data["length"])
    rows = first + jnp.arange(size)
    there, rows = rows < len(places), jnp.minimum(rows, len(places) - 1)
    places, weights = places[rows], there * weights[rows]
    samples = jax.tree.map(lambda a: a[places], data["samples"])

    def grad(place: Any, sample: Tree) -> Tree:
        return _sample_gradient(objective, x, batch, place, sample)

    return jax.vmap(grad)(places, samples), weights


def _sample_gradient(objective: MeanLoss, x: Tree, batch: Any, place: Any, sample: Tree) -> Tree:
    """Compute the gradient of the loss of one sample."""
    import jax

    alone = jax.tree.map(lambda a: a[None], sample)
    key, number = keys.fold(batch.key, place), batch.number
    if objective.augment is not None:
        alone = objective.augment(keys.fold(key, number, 1), alone)

    def loss(x: Tree) -> Any:
        draws = {"key": keys.fold(key, number, 2)} if objective.draws else {}
        model = objective.lower(x)
        return objective.fast(objective.loss_fn)(model, alone, **draws)[0]

    return jax.grad(loss)(x)


def _block(x: Tree) -> int:
    """Give how many gradients like x a block has."""
    return max(1, BLOCK // tree.size(x))


def _as_rows(x: Tree, grads: Tree, units: int) -> Float[np.ndarray, "units d"]:
    """Lay out gradients like x, those of several units along a first axis, as rows."""

    def rows(a: Any, grad: Any) -> np.ndarray:
        return np.asarray(grad, float).reshape(units, np.size(a))

    return np.concatenate(tree.leaves(tree.map(rows, x, grads)), axis=1)

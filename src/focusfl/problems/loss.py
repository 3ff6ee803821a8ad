"""Any model written in jax: a loss per sample, and everybody's samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from focusfl import data as room
from focusfl import keys
from focusfl.problems.problem import Objective, Problem
from focusfl.tree import Tree

LossFn = Callable[[Tree, Tree], Any]  # (model, samples) -> the loss of each sample
MetricsFn = Callable[[Tree, Tree], dict[str, Any]]  # (model, samples) -> scalars


@dataclass(frozen=True)
class MeanLoss(Objective):
    """f(x) is the mean loss over a client's samples, seen a batch at a time."""

    loss_fn: LossFn
    metrics_fn: MetricsFn | None
    batch_size: int
    stream: str  # how a client walks its data; see focusfl.data.streams

    stochastic: ClassVar[bool] = True

    def grad(self, x, data, batch):
        import jax
        import jax.numpy as jnp

        def loss(x):
            return (weights * self.loss_fn(x, samples)).sum()

        leaves = jax.tree.leaves(x)
        with jax.enable_x64(leaves[0].dtype == "float64"):
            places, weights = self.pick(batch, data["length"], _rows(data["samples"]))
            samples = jax.tree.map(lambda a: jnp.asarray(a)[places], data["samples"])
            grad = jax.grad(loss)(x)
        if isinstance(leaves[0], np.ndarray):  # stay in the library of the model
            return jax.tree.map(np.asarray, grad)
        return grad

    def pick(self, batch, length, most: int):
        """The places of a batch in a client's data, and what each weighs in its mean.

        A client has `length` samples in `most` places. An epoch's last batch may be
        short: the places it lacks weigh nothing.
        """
        import jax
        import jax.numpy as jnp

        size = self.batch_size
        if self.stream == "with_replacement":
            key = keys.fold(batch.key, batch.number)
            places = jax.random.randint(key, (size,), 0, length, "int32")
            return places, jnp.full(size, 1 / size)
        per_epoch = -(-length // size)
        epoch, turn = batch.number // per_epoch, batch.number % per_epoch
        order = jnp.arange(most)
        if self.stream == "epochs":
            # Those of other clients' length come last, the others in a new order.
            key = keys.fold(batch.key, epoch)
            noise = jax.random.uniform(key, (most,), "float32")
            order = jnp.argsort(jnp.where(order < length, noise, 2.0))
        walk = turn * size + jnp.arange(size)
        there = walk < length
        return order[jnp.minimum(walk, most - 1)], there / there.sum()

    def evaluate(self, x, held):
        import jax

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            if self.metrics_fn is not None:
                return self.metrics_fn(x, held)
            return {"loss": self.loss_fn(x, held).mean()}


@dataclass(frozen=True, eq=False)
class Learned(Problem):
    """What `from_loss` makes: clients' samples side by side, padded to one length."""

    mean_loss: MeanLoss
    samples: Tree  # leaves (clients, most, ...)
    lengths: Int[np.ndarray, " clients"]
    evaluated_on: Tree
    params: Tree
    dtype: str = "float32"

    @property
    def num_clients(self):
        return len(self.lengths)

    @property
    def objective(self):
        return self.mean_loss

    @property
    def data(self):
        return {"samples": self.samples, "length": self.lengths}

    @property
    def held(self):
        return self.evaluated_on

    @property
    def x0(self):
        return self.params


def from_loss(
    loss_fn: LossFn,
    params: Tree,
    client_data: Sequence[Tree],
    *,
    batch_size: int,
    held: Tree,
    metrics_fn: MetricsFn | None = None,
    stream: str = "epochs",
    dtype: str = "float32",
) -> Learned:
    """Make a problem of any jax model.

    `loss_fn(params, samples)` gives the loss of every sample; `client_data` holds one
    tree of arrays per client, with samples along the first axis; `held` is a tree of
    samples to evaluate on, by `metrics_fn(params, held)` or else the mean loss.
    """
    if stream not in room.STREAMS:
        raise ValueError(
            f"stream must be one of {sorted(room.STREAMS)}; got {stream!r}."
        )
    if not client_data:
        raise ValueError("client_data must hold the data of at least one client.")
    lengths = [_rows(samples) for samples in client_data]
    for i, length in enumerate(lengths):
        if not length:
            raise ValueError(f"client {i} has no data; leave it out.")
        if batch_size > length:
            raise ValueError(
                f"batch_size must not exceed a client's data; got {batch_size}, and "
                f"client {i} has {length} samples."
            )
    if not batch_size >= 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    import jax

    pooled = jax.tree.map(lambda *leaves: np.concatenate(leaves), *client_data)
    leaves, structure = jax.tree.flatten(pooled)
    parts = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    samples = jax.tree.unflatten(structure, room.stack(parts, *leaves).arrays)
    x0 = jax.tree.map(lambda a: np.asarray(a, dtype), params)
    loss = MeanLoss(loss_fn, metrics_fn, batch_size, stream)
    return Learned(loss, samples, np.array(lengths, np.int32), held, x0, dtype)


def _rows(samples: Tree) -> int:
    import jax

    sizes = {len(leaf) for leaf in jax.tree.leaves(samples)}
    if len(sizes) != 1:
        raise ValueError(
            f"a client's arrays must have one length; got {sorted(sizes)}."
        )
    return sizes.pop()

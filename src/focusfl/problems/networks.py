"""Networks on data sets, each named by a word: what a study says of them.

Features are standardised channel by channel, as the samples for training have them,
inside of the model: arrays stay as they are, in a byte for a pixel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.core.registry import PROBLEMS
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_one_of, check_share
from focusfl.data import SPLITS
from focusfl.problems.dealt import CLIENTS, TEST_SHARE, Deal, dealt
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import (
    check_widths,
    cross_entropy,
    dense,
    dense_params,
    right_and_loss,
)
from focusfl.problems.validation import check_options
from focusfl.problems.vision import ImageMetrics, cnn_params
from focusfl.problems.vision import cnn as convolved
from focusfl.problems.weights import Weights

Model = Callable[[Tree, Any], Any]  # (params, x) -> scores
Start = Callable[[tuple[int, ...], int], Tree]  # (shape of a sample, classes) -> params


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
class Loss:
    """Cross entropy of every sample."""

    scores: Scores

    def __call__(self, params: Tree, samples: Tree) -> Any:
        return cross_entropy(self.scores(params, samples), samples["y"])


@dataclass(frozen=True)
class Each:
    """Accuracy and loss of every sample."""

    scores: Scores

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        return right_and_loss(self.scores(params, samples), samples["y"])


@PROBLEMS.register("digits")
def digits(
    model: str = "mlp",
    num_clients: int = CLIENTS,
    split: str = "dirichlet_balanced",
    alpha: float = 0.5,
    batch_size: int = 16,
    test_share: float = TEST_SHARE,
    stream: str = "epochs",
    compute_dtype: str | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Handwritten digits, 1,797 images of 8 x 8 pixels, by a small network.

    They come with scikit-learn: the extra `digits`.

    Args:
        model: softmax, mlp (one hidden layer of 64) or cnn.
        num_clients: N.
        split: by_label, iid, dirichlet or dirichlet_balanced, which gives everybody
            equally many.
        alpha: of the Dirichlet splits; smaller is more uneven.
        batch_size: samples of a gradient.
        test_share: of every digit, held out to evaluate on.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        compute_dtype: that the model is computed in, such as bfloat16.
        seed: of who has what, of what is held out and of the weights to start from.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If scikit-learn is missing, or a word or number is not known.
    """
    models: dict[str, tuple[Model, Start]] = {
        "softmax": (dense, _dense((), seed)),
        "mlp": (dense, _dense((64,), seed)),
        "cnn": (convolved, lambda shape, classes: cnn_params(seed, shape, classes)),
    }
    check_one_of("model", model, models)
    check_one_of("split", split, SPLITS)
    check_count("num_clients", num_clients)
    check_share("test_share", test_share, whole=False)
    options = _options(batch_size, stream, compute_dtype, weights)
    deal = Deal(num_clients, split, alpha, test_share, seed)
    return _problem(*models[model], "digits", deal, options)


@PROBLEMS.register("mlp")
def mlp_on(
    data: str = "digits",
    hidden: Sequence[int] = (64,),
    num_clients: int | None = None,
    split: str | None = None,
    alpha: float = 0.5,
    batch_size: int = 16,
    test_share: float | None = None,
    stream: str = "epochs",
    compute_dtype: str | None = None,
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """Dense layers with relu between them, on a data set or a file of one's own.

    Args:
        data: digits, cifar10 or an .npz file with arrays x, (samples, ...), and y,
            whole numbers from 0; in a study, beside it. An array `client` in it says
            who has each sample.
        hidden: widths of the layers between; [] is softmax regression.
        num_clients: N; 10 if None, or as many as the file names.
        split: by_label, iid, dirichlet or dirichlet_balanced; if None, by the file's
            `client`, and without it dirichlet_balanced.
        alpha: of the Dirichlet splits; smaller is more uneven.
        batch_size: samples of a gradient.
        test_share: held out to evaluate on, of every class or client; a fifth if None.
            CIFAR-10 has images for it.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        compute_dtype: that the model is computed in, such as bfloat16.
        seed: of who has what, of what is held out and of the weights to start from.
        data_dir: folder of CIFAR-10; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there or do not fit, or a word or number is not
            known.
    """
    check_widths("hidden", hidden)
    options = _options(batch_size, stream, compute_dtype, weights)
    deal = Deal(num_clients, split, alpha, test_share, seed)
    return _problem(dense, _dense(hidden, seed), data, deal, options, data_dir)


@PROBLEMS.register("cnn")
def cnn(
    data: str = "digits",
    channels: Sequence[int] = (16, 32, 64),
    hidden: int = 500,
    num_clients: int | None = None,
    split: str | None = None,
    alpha: float = 0.5,
    batch_size: int = 16,
    test_share: float | None = None,
    stream: str = "epochs",
    compute_dtype: str | None = None,
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """The paper's small CNN on images of any size, or a file of one's own.

    Args:
        data: digits, cifar10 or an .npz file with arrays x, (samples, height, width,
            channels), and y, whole numbers from 0; in a study, beside it. An array
            `client` in it says who has each sample.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        num_clients: N; 10 if None, or as many as the file names.
        split: by_label, iid, dirichlet or dirichlet_balanced; if None, by the file's
            `client`, and without it dirichlet_balanced.
        alpha: of the Dirichlet splits; smaller is more uneven.
        batch_size: samples of a gradient.
        test_share: held out to evaluate on, of every class or client; a fifth if None.
            CIFAR-10 has images for it.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        compute_dtype: that the model is computed in, such as bfloat16.
        seed: of who has what, of what is held out and of the weights to start from.
        data_dir: folder of CIFAR-10; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there or do not fit, or a word or number is not
            known.
    """
    check_widths("channels", channels, least=1)
    check_count("hidden", hidden)
    options = _options(batch_size, stream, compute_dtype, weights)
    deal = Deal(num_clients, split, alpha, test_share, seed)

    def start(shape: tuple[int, ...], classes: int) -> Tree:
        return cnn_params(seed, shape, classes, channels, hidden)

    return _problem(convolved, start, data, deal, options, data_dir)


def _dense(hidden: Sequence[int], seed: int) -> Start:
    return lambda shape, classes: dense_params([int(np.prod(shape)), *hidden, classes], seed)


def _options(
    batch_size: int, stream: str, compute_dtype: str | None, weights: Weights
) -> dict[str, Any]:
    check_count("batch_size", batch_size)  # None would be all that a client has
    check_options(batch_size, stream, "float32", compute_dtype)
    return {
        "batch_size": batch_size, "stream": stream, "compute_dtype": compute_dtype,
        "weights": weights,
    }  # fmt: skip


def _problem(
    model: Model,
    start: Start,
    name: str,
    deal: Deal,
    options: dict[str, Any],
    data_dir: str | None = None,
) -> LossProblem:
    """Deal a data set out, and put a model on it."""
    found = dealt(name, deal, data_dir)
    params = start(found.tests["x"].shape[1:], found.classes)
    scores = Scores(model, found.mean, found.std)
    return from_loss(
        Loss(scores), params, found.clients, eval_data=found.tests,
        metrics_fn=ImageMetrics(Each(scores)), **options,
    )  # fmt: skip

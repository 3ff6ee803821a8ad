"""Networks on data sets that a study names: digits, CIFAR-10, or a file of the user's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.tree import Tree
from focusfl.core.validation import (
    check_count,
    check_flag,
    check_one_of,
    check_positive,
    check_share,
    shown,
)
from focusfl.data import SPLITS, Samples
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import (
    AccuracyAndLoss,
    CrossEntropy,
    ImageMetrics,
    Model,
    Standardised,
    channel_moments,
    cnn_params,
    cnn_scores,
    dense,
    dense_params,
)
from focusfl.problems.neural import check_widths
from focusfl.problems.problem import Weights
from focusfl.problems.validation import check_options

# Of each channel of CIFAR-10's pixels, divided by 255.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
PADDING = 4  # pixels around an image that a crop may take in
DATA_SETS = ("digits", "cifar10")
TEST_SHARE = 0.2  # of the samples of each class, or client, where no test samples are given
CLIENTS = 10  # where the data do not say
Start = Callable[[tuple[int, ...], int], Tree]  # (shape of a sample, classes) -> params


class Split(NamedTuple):
    """How samples are split over clients, and how many are held out for evaluation."""

    num_clients: int | None
    how: str | None  # one of data.SPLITS; None: as the file says
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
    """Classify handwritten digits, 1,797 images of 8 x 8 pixels, by a small network.

    The images come with scikit-learn: the extra `digits`.

    Args:
        model: softmax, mlp (one hidden layer of 64) or cnn.
        num_clients: N.
        split: by_label, iid, dirichlet or dirichlet_balanced, with which all clients have
            equally many samples.
        alpha: of the Dirichlet splits; a smaller one is more uneven.
        batch_size: number of samples of a gradient.
        test_share: share of every class that is held out for evaluation.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        compute_dtype: type that the model is computed in, such as bfloat16.
        seed: of the split, of what is held out and of the initial weights.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If scikit-learn is missing, or an argument is out of its range.
    """
    check_one_of("model", model, ("softmax", "mlp", "cnn"))
    check_one_of("split", split, SPLITS)
    check_count("num_clients", num_clients)
    check_share("test_share", test_share, whole=False)
    options: dict[str, Any] = {
        "num_clients": num_clients, "split": split, "alpha": alpha, "batch_size": batch_size,
        "test_share": test_share, "stream": stream, "compute_dtype": compute_dtype,
        "seed": seed, "weights": weights,
    }  # fmt: skip
    if model == "cnn":
        return cnn_on("digits", **options)
    return mlp_on("digits", (64,) if model == "mlp" else (), **options)


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
    """Classify samples of a data set, or of a file, by dense layers with relu between them.

    Args:
        data: digits, cifar10, or the path of an .npz file (in a study, relative to it) with
            arrays x, (samples, ...), and y, (samples,), whole numbers from 0; it may have
            an array `client`, (samples,), that says which client has each sample.
        hidden: widths of the hidden layers; [] is softmax regression.
        num_clients: N; None: as many as the file names, or 10.
        split: by_label, iid, dirichlet or dirichlet_balanced; None: by the file's `client`,
            or dirichlet_balanced if it has none.
        alpha: of the Dirichlet splits; a smaller one is more uneven.
        batch_size: number of samples of a gradient.
        test_share: share of every class, or client, that is held out for evaluation; None: a
            fifth. CIFAR-10 has test images and takes none.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        compute_dtype: type that the model is computed in, such as bfloat16.
        seed: of the split, of what is held out and of the initial weights.
        data_dir: folder of CIFAR-10; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing or do not fit, or an argument is out of its range.
    """
    check_widths("hidden", hidden)
    options = _options(batch_size, stream, compute_dtype, weights)
    parts = Split(num_clients, split, alpha, test_share, seed)

    def start(shape: tuple[int, ...], classes: int) -> Tree:
        return dense_params([int(np.prod(shape)), *hidden, classes], seed)

    return _problem(dense, start, data, parts, options, data_dir)


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
    """Classify images of any size by the paper's small CNN.

    Args:
        data: digits, cifar10, or the path of an .npz file (in a study, relative to it) with
            arrays x, (samples, height, width, channels), and y, (samples,), whole numbers
            from 0; it may have an array `client`, (samples,), that says which client has
            each sample.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        num_clients: N; None: as many as the file names, or 10.
        split: by_label, iid, dirichlet or dirichlet_balanced; None: by the file's `client`,
            or dirichlet_balanced if it has none.
        alpha: of the Dirichlet splits; a smaller one is more uneven.
        batch_size: number of samples of a gradient.
        test_share: share of every class, or client, that is held out for evaluation; None: a
            fifth. CIFAR-10 has test images and takes none.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        compute_dtype: type that the model is computed in, such as bfloat16.
        seed: of the split, of what is held out and of the initial weights.
        data_dir: folder of CIFAR-10; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing or do not fit, or an argument is out of its range.
    """
    check_widths("channels", channels, least=1)
    check_count("hidden", hidden)
    options = _options(batch_size, stream, compute_dtype, weights)
    parts = Split(num_clients, split, alpha, test_share, seed)

    def start(shape: tuple[int, ...], classes: int) -> Tree:
        return cnn_params(seed, shape, classes, channels, hidden)

    return _problem(cnn_scores, start, data, parts, options, data_dir)


@PROBLEMS.register("cifar10")
def cifar10(
    num_clients: int = 32,
    alpha: float = 0.05,
    batch_size: int = 128,
    *,
    augment: bool = True,
    stream: str = "epochs",
    compute_dtype: str | None = None,
    seed: int = 66,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """Classify CIFAR-10 by the paper's small CNN, with classes split unevenly over clients.

    Args:
        num_clients: N; all have equally many images.
        alpha: of the balanced Dirichlet split; a smaller one is more uneven.
        batch_size: number of images of a gradient.
        augment: whether to shift and mirror the images of every batch at random.
        stream: order of a client's images: epochs, fixed_order or with_replacement.
        compute_dtype: type that the model is computed in, such as bfloat16.
        seed: of the split and of the initial weights.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing, or an argument is out of its range.
    """
    options = _options(batch_size, stream, compute_dtype, weights)
    check_flag("augment", augment)
    check_count("num_clients", num_clients)  # before data are loaded
    check_positive("alpha", alpha)
    check_count("seed", seed, least=0)
    images = data.cifar10(data_dir)
    parts = data.dirichlet_balanced(images.train_y, num_clients, alpha, seed, drop_rest=True)
    clients = [{"x": images.train_x[part], "y": images.train_y[part]} for part in parts]
    return from_loss(
        image_loss, cnn_params(seed), clients,
        eval_data={"x": images.test_x, "y": images.test_y}, metrics_fn=image_metrics,
        augment=crop_and_flip if augment else None, **options,
    )  # fmt: skip


def _options(
    batch_size: int, stream: str, compute_dtype: str | None, weights: Weights
) -> dict[str, Any]:
    """Check these options of `from_loss`, and return them by name."""
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
    split: Split,
    options: dict[str, Any],
    data_dir: str | None,
) -> LossProblem:
    """Load a data set, split it over clients, and make a problem of a model on it.

    Features are standardised by mean and deviation of each channel in training.
    """
    check_count("seed", split.seed, least=0)
    train, test = _train_and_test(name, split, data_dir)
    if name == "cifar10":
        mean, std = (tuple(255.0 * a for a in moments) for moments in (MEAN, STD))
    else:
        mean, std = channel_moments(train.x)
    clients = [{"x": train.x[part], "y": train.y[part]} for part in _parts(train, split)]
    classes = int(max(train.y.max(), test.y.max())) + 1
    scores = Standardised(model, mean, std)
    return from_loss(
        CrossEntropy(scores), start(test.x.shape[1:], classes), clients,
        eval_data={"x": test.x, "y": test.y},
        metrics_fn=ImageMetrics(AccuracyAndLoss(scores)), **options,
    )  # fmt: skip


def _train_and_test(name: str, split: Split, data_dir: str | None) -> tuple[Samples, Samples]:
    """Load a data set; return samples for training and for evaluation."""
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
    is_test = data.hold_out(groups, share, split.seed)
    lost = set(groups.tolist()) - set(groups[~is_test].tolist())
    if not is_test.any() or lost:
        least = np.unique(groups, return_counts=True)[1].min()
        raise ValueError(
            "test_share must leave every class, or client, samples for training, and "
            f"some for tests; got {share}, where the fewest are {least} of {len(is_test)}."
        )
    train, test = (
        Samples(whole.x[k], whole.y[k], None if whole.client is None else whole.client[k])
        for k in (~is_test, is_test)
    )
    return train, test


def _parts(train: Samples, split: Split) -> list[np.ndarray]:
    """Return the places of each client's samples."""
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


def pixels(images: Any, dtype: Any) -> Any:
    """Standardise the bytes of images by mean and deviation of CIFAR-10's channels."""
    import jax.numpy as jnp

    scale = 1 / (255 * jnp.array(STD, dtype))
    return images.astype(dtype) * scale - jnp.array(MEAN, dtype) / jnp.array(STD, dtype)


def crop_and_flip(key: Any, samples: Tree) -> Tree:
    """Shift images by up to 4 pixels each way, filling in black, and mirror half of them."""
    import jax
    import jax.numpy as jnp

    images = samples["x"]
    batch, height, width, channels = images.shape
    where, turn = jax.random.split(key)
    at = jax.random.randint(where, (2, batch, 1), 0, 2 * PADDING + 1)
    flip = jax.random.bernoulli(turn, shape=(batch, 1))
    rows = at[0] + jnp.arange(height) - PADDING
    columns = jnp.arange(width)
    columns = jnp.where(flip, width - 1 - columns, columns) + at[1] - PADDING
    inside = _inside(rows, height)[:, :, None] & _inside(columns, width)[:, None, :]
    image = jnp.arange(batch)[:, None, None]
    moved = images.at[image, rows[:, :, None], columns[:, None, :]].get(mode="clip")
    return samples | {"x": jnp.where(inside[..., None], moved, 0)}


def _inside(a: Any, size: int) -> Any:
    return (a >= 0) & (a < size)


def cifar_scores(params: Tree, samples: Tree) -> Any:
    """Score images of bytes by the paper's CNN."""
    return cnn_scores(params, pixels(samples["x"], params["out"]["b"].dtype))


image_loss = CrossEntropy(cifar_scores)
image_metrics = ImageMetrics(AccuracyAndLoss(cifar_scores))

"""The paper's image experiment: CIFAR-10, a small CNN, labels dealt out unevenly."""

from typing import Any

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_flag, check_positive
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.neural import (
    ImageMetrics,
    accuracy_and_loss,
    cnn_params,
    cnn_scores,
    cross_entropy,
)
from focusfl.problems.validation import check_options
from focusfl.problems.weights import Weights

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of each channel
PADDING = 4  # pixels around an image that a crop may take in


def pixels(images: Any, dtype: Any) -> Any:
    """Normalise bytes, channel by channel."""
    import jax.numpy as jnp

    scale = 1 / (255 * jnp.array(STD, dtype))
    return images.astype(dtype) * scale - jnp.array(MEAN, dtype) / jnp.array(STD, dtype)


def crop_and_flip(key: Any, samples: Tree) -> Tree:
    """Shift every image by up to 4 pixels, black coming in, and mirror every other."""
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
    there = _inside(rows, height)[:, :, None] & _inside(columns, width)[:, None, :]
    each = jnp.arange(batch)[:, None, None]
    moved = images.at[each, rows[:, :, None], columns[:, None, :]].get(mode="clip")
    return samples | {"x": jnp.where(there[..., None], moved, 0)}


def _inside(a: Any, size: int) -> Any:
    return (a >= 0) & (a < size)


def image_loss(params: Tree, samples: Tree) -> Any:
    """Cross entropy of every sample."""
    return cross_entropy(_scores(params, samples), samples["y"])


def _each(params: Tree, samples: Tree) -> dict[str, Any]:
    return accuracy_and_loss(_scores(params, samples), samples["y"])


image_metrics = ImageMetrics(_each)


def _scores(params: Tree, samples: Tree) -> Any:
    return cnn_scores(params, pixels(samples["x"], params["out"]["b"].dtype))


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
    """CIFAR-10 by a small CNN: classes dealt out unevenly, as in the paper.

    Args:
        num_clients: N; all have equally many images.
        alpha: of the balanced Dirichlet law; smaller is more uneven.
        batch_size: images of a gradient.
        augment: shift and mirror the images of every batch at random.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        compute_dtype: that the model is computed in, such as bfloat16.
        seed: of who has which images, and of the weights to start from.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a number or word is not known.
    """
    check_count("batch_size", batch_size)  # None would be all that a client has
    check_options(batch_size, stream, "float32", compute_dtype)
    check_flag("augment", augment)
    check_count("num_clients", num_clients)  # before data are looked for
    check_positive("alpha", alpha)
    check_count("seed", seed, least=0)
    images = data.cifar10(data_dir)
    parts = data.dirichlet_balanced(images.train_y, num_clients, alpha, seed, drop_rest=True)
    clients = [{"x": images.train_x[part], "y": images.train_y[part]} for part in parts]
    return from_loss(
        image_loss,
        cnn_params(seed),
        clients,
        batch_size=batch_size,
        eval_data={"x": images.test_x, "y": images.test_y},
        metrics_fn=image_metrics,
        stream=stream,
        augment=crop_and_flip if augment else None,
        compute_dtype=compute_dtype,
        weights=weights,
    )

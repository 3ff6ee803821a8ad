"""The paper's image experiment: CIFAR-10, a small CNN, labels dealt out unevenly."""

from typing import Any

import numpy as np

from focusfl import data, keys
from focusfl.problems.loss import Learned, from_loss
from focusfl.problems.models import accuracy, cross_entropy
from focusfl.tree import Tree

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of each channel
CHANNELS = (3, 16, 32, 64)  # into and out of the three convolutions
HIDDEN, CLASSES = 500, 10
PADDING = 4  # pixels around an image that a crop may take in
AT_ONCE = 1000  # images evaluated together


def cnn_params(seed: int = 0) -> Tree:
    """Draw the weights: uniform in +-1 / sqrt(fan in); 541,094 numbers."""
    rng = keys.rng(seed, "cnn")

    def layer(*shape: int) -> dict[str, np.ndarray]:
        bound = 1 / np.sqrt(np.prod(shape[:-1]))
        w, b = (rng.uniform(-bound, bound, s) for s in (shape, shape[-1]))
        return {"w": w.astype(np.float32), "b": b.astype(np.float32)}

    shapes = zip(CHANNELS, CHANNELS[1:], strict=False)
    params = {f"conv{i}": layer(3, 3, *shape) for i, shape in enumerate(shapes)}
    return params | {
        "hidden": layer(CHANNELS[-1] * 4 * 4, HIDDEN),
        "out": layer(HIDDEN, CLASSES),
    }


def cnn(params: Tree, x: Any) -> Any:
    """Score images, (batch, 32, 32, 3): three convolutions, two dense layers."""
    import jax

    convs = [params[f"conv{i}"] for i in range(3)]
    x = (_on_cpu if jax.default_backend() == "cpu" else _on_device)(convs, x)
    x = jax.nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return x @ params["out"]["w"] + params["out"]["b"]


def _on_cpu(convs: list[Tree], x: Any) -> Any:
    from focusfl.problems.images_last import convolve_and_pool

    x = x.transpose(3, 1, 2, 0)  # channels, rows, columns, images
    for layer in convs:
        w = layer["w"].reshape(-1, layer["w"].shape[-1])
        x = convolve_and_pool(x, w, layer["b"])
    return x.transpose(3, 1, 2, 0).reshape(x.shape[-1], -1)


def _on_device(convs: list[Tree], x: Any) -> Any:
    import jax

    for layer in convs:
        x = jax.nn.relu(convolve_and_pool(x, layer["w"]) + layer["b"])
    return x.reshape(len(x), -1)


def convolve_and_pool(x: Any, w: Any, padding: int = 1) -> Any:
    """Convolve with 3 x 3 weights and take the largest of every 2 x 2 results.

    The four results lie within 4 x 4 pixels, so one product of all such windows with
    weights for the four of them does it. With other weights for every client a
    product is what a device does best, and these windows are less than half the
    memory of the 3 x 3 surroundings of every pixel.
    """
    import jax.numpy as jnp

    batch, side, _, channels = x.shape
    half = (side + 2 * padding - 2) // 2
    wide = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    blocks = wide.reshape(batch, half + 1, 2, half + 1, 2, channels).swapaxes(2, 3)
    near = [blocks[:, i : i + half, j : j + half] for i in (0, 1) for j in (0, 1)]
    windows = jnp.stack(near, 3).reshape(batch * half * half, 16 * channels)
    four = [
        jnp.pad(w, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0)))
        for i in (0, 1)
        for j in (0, 1)
    ]  # where each of the four has its weights in the window
    w4 = jnp.stack(four, 3)  # (row, column, channel, which of the four, channel out)
    w4 = w4.reshape(2, 2, 2, 2, channels, -1).swapaxes(1, 2)
    out = windows @ w4.reshape(16 * channels, -1)
    return out.reshape(batch, half, half, 4, -1).max(3)


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


def image_metrics(params: Tree, held: Tree) -> dict[str, Any]:
    """Accuracy and loss, some images at a time."""
    import jax

    def some(samples):
        scores, y = _scores(params, samples), samples["y"]
        return {
            "accuracy": accuracy(scores, y),
            "loss": cross_entropy(scores, y).mean(),
        }

    count = len(held["y"])
    size = next(n for n in range(min(count, AT_ONCE), 0, -1) if count % n == 0)
    parts = jax.tree.map(lambda a: a.reshape(-1, size, *a.shape[1:]), held)
    return jax.tree.map(lambda a: a.mean(), jax.lax.map(some, parts))


def _scores(params: Tree, samples: Tree) -> Any:
    return cnn(params, pixels(samples["x"], params["out"]["b"].dtype))


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
) -> Learned:
    """Deal CIFAR-10 out by a balanced Dirichlet law, as in the paper."""
    images = data.cifar10(data_dir)
    parts = data.dirichlet_balanced(
        images.train_y, num_clients, alpha, seed, drop_rest=True
    )
    clients = [{"x": images.train_x[part], "y": images.train_y[part]} for part in parts]
    return from_loss(
        image_loss,
        cnn_params(seed),
        clients,
        batch_size=batch_size,
        held={"x": images.test_x, "y": images.test_y},
        metrics_fn=image_metrics,
        stream=stream,
        augment=crop_and_flip if augment else None,
        compute_dtype=compute_dtype,
    )

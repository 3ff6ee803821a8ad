"""The next character: a small recurrent network on what people say."""

from typing import Any

import numpy as np

from focusfl import data
from focusfl.core import random as keys
from focusfl.core.registry import PROBLEMS
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count
from focusfl.problems.evaluation import PerSample
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.neural import accuracy_and_loss
from focusfl.problems.validation import check_options
from focusfl.problems.weights import Weights


def gru_params(signs: int, width: int, seed: int = 0) -> Tree:
    """Draw the weights of a gated recurrent unit: uniform in +-1 / sqrt(width).

    `signs` is how many characters there are, to read and to tell.
    """
    rng, bound = keys.rng(seed, "gru"), 1 / np.sqrt(width)

    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return {
        "read": draw(signs, 3 * width),  # a row for each character: its gates
        "keep": {"w": draw(width, 3 * width), "b": draw(3 * width)},
        "out": {"w": draw(width, signs), "b": draw(signs)},
    }


def gru(params: Tree, x: Any) -> Any:
    """Score what comes after each character: (pieces, length) -> (..., signs).

    Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate behind the
    product, as cuDNN has it.
    """
    import jax
    import jax.numpy as jnp

    keep, out = params["keep"], params["out"]
    width = keep["w"].shape[0]

    def step(h: Any, read: Any) -> tuple[Any, Any]:
        kept = h @ keep["w"] + keep["b"]
        update, reset = jnp.split(jax.nn.sigmoid((read + kept)[:, : 2 * width]), 2, axis=1)
        new = jnp.tanh(read[:, 2 * width :] + reset * kept[:, 2 * width :])
        h = update * h + (1 - update) * new
        return h, h

    h = jnp.zeros((len(x), width), out["b"].dtype)
    _, states = jax.lax.scan(step, h, params["read"][x.T])
    return jnp.swapaxes(states, 0, 1) @ out["w"] + out["b"]


def _each(params: Tree, samples: Tree) -> dict[str, Any]:
    """Of every piece: the share of characters told right, and the mean loss."""
    scores, y = gru(params, samples["x"]), samples["y"]
    found = accuracy_and_loss(scores.reshape(y.size, -1), y.ravel())
    return {k: values.reshape(y.shape).mean(1) for k, values in found.items()}


def _loss(params: Tree, samples: Tree) -> Any:
    return _each(params, samples)["loss"]


@PROBLEMS.register("shakespeare")
def shakespeare(
    num_clients: int = 30,
    length: int = 40,
    width: int = 64,
    batch_size: int = 8,
    test_share: float = 0.2,
    stream: str = "epochs",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """The next character of what Shakespeare's speakers say, by a small GRU.

    Its state begins at zero with every piece. A client is evaluated on the end of what
    it says; accuracy is the share of characters told right.

    Args:
        num_clients: how many speakers, those with the longest parts.
        length: characters of a piece.
        width: of the state.
        batch_size: pieces of a gradient.
        test_share: of every speaker's pieces, the last ones, to evaluate on.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        seed: of the weights to start from.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a word or number is not known.
    """
    check_count("width", width)
    check_count("batch_size", batch_size)
    check_options(batch_size, stream, "float32", None)
    check_count("seed", seed, least=0)
    found = data.shakespeare(num_clients, length, test_share, data_dir)
    return from_loss(
        _loss, gru_params(len(found.classes), width, seed), found.train,
        batch_size=batch_size, eval_data=found.tests, client_eval_data=found.test,
        metrics_fn=PerSample(_each), stream=stream, fast_convolutions=False,
        weights=weights,
    )  # fmt: skip

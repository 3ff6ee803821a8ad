"""Classifiers on any arrays: softmax regression and a multilayer perceptron.

Samples are dicts of features x, (samples, ...), and labels y, 0 to classes - 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from focusfl.core import random as keys
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, shown
from focusfl.problems import validation
from focusfl.problems.evaluation import PerSample
from focusfl.problems.loss import LossProblem, from_loss


def softmax(
    client_data: Sequence[Tree], *, classes: int, eval_data: Tree, **options: Any
) -> LossProblem:
    """Make softmax regression, from zero; options are those of `from_loss`.

    Args:
        client_data: one dict per client: features x, (samples, ...), and labels y.
        classes: how many labels there are, 0 to classes - 1.
        eval_data: samples to evaluate on, likewise.
        options: of `from_loss`; batch_size must be given.

    Raises:
        ValueError: If a label is not a whole number from 0 to classes - 1.
    """
    return mlp(client_data, classes=classes, eval_data=eval_data, hidden=(), **options)


def mlp(
    client_data: Sequence[Tree],
    *,
    classes: int,
    eval_data: Tree,
    hidden: Sequence[int] = (64,),
    seed: int = 0,
    **options: Any,
) -> LossProblem:
    """Make dense layers of these hidden widths, with relu between them.

    Args:
        client_data: one dict per client: features x, (samples, ...), and labels y.
        classes: how many labels there are, 0 to classes - 1.
        eval_data: samples to evaluate on, likewise.
        hidden: widths of the layers between.
        seed: of the weights to start from.
        options: of `from_loss`; batch_size must be given.

    Raises:
        ValueError: If a label is not a whole number from 0 to classes - 1.
    """
    check_count("classes", classes)
    check_widths("hidden", hidden)
    client_data, eval_data = (
        validation.everybody(client_data),
        validation.arrays("eval_data", eval_data),
    )
    check_labels(client_data, eval_data, classes)
    if (own := options.get("client_eval_data")) is not None:
        own = validation.eval_sets(own, client_data)
        check_labels(own, eval_data, classes, " of client_eval_data")
    wide = int(np.prod(np.shape(eval_data["x"])[1:]))
    params = dense_params([wide, *hidden, classes], seed)
    return from_loss(
        _loss,
        params,
        client_data,
        eval_data=eval_data,
        metrics_fn=_Metrics(_each),
        **options,
    )


def check_widths(name: str, widths: Any, least: int = 0) -> None:
    """Raise unless these are widths of layers, as many as `least` or more."""
    several = isinstance(widths, Sequence) and not isinstance(widths, str)
    if not several or len(widths) < least:
        raise ValueError(f"{name} must be a list of widths; got {shown(widths)}.")
    for width in widths:
        check_count(f"{name} widths", width)


def check_labels(client_data: Sequence[Tree], eval_data: Tree, classes: int, of: str = "") -> None:
    """Raise unless all have x like eval_data's, and labels y from 0 to classes - 1."""
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


def cross_entropy(scores: Any, labels: Any) -> Any:
    """The loss of each sample, from its scores and its label, 0 to classes - 1."""
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
    """The share of samples whose label has the highest score."""
    return (scores.argmax(1) == labels).mean()


def dense_params(widths: list[int], seed: int) -> Tree:
    """Draw weights uniform in +-1 / sqrt(fan in); a single layer starts from zero."""
    rng, layers = keys.rng(seed, "mlp"), {}
    for i, shape in enumerate(zip(widths, widths[1:], strict=False)):
        bound = (len(widths) > 2) / np.sqrt(shape[0])
        layers[f"layer{i}"] = {
            "w": rng.uniform(-bound, bound, shape),
            "b": rng.uniform(-bound, bound, shape[1]),
        }
    return layers


def dense(params: Tree, x: Any) -> Any:
    """Score samples by dense layers, with relu between them."""
    import jax

    first, *rest = (params[f"layer{i}"] for i in range(len(params)))
    x = x.reshape(len(x), -1).astype(first["w"].dtype)
    x = x @ first["w"] + first["b"]
    for layer in rest:
        x = jax.nn.relu(x) @ layer["w"] + layer["b"]
    return x


def _loss(params: Tree, samples: Tree) -> Any:
    return cross_entropy(dense(params, samples["x"]), samples["y"])


def _each(params: Tree, samples: Tree) -> dict[str, Any]:
    return right_and_loss(dense(params, samples["x"]), samples["y"])


def right_and_loss(scores: Any, labels: Any) -> dict[str, Any]:
    """Whether each sample is classified right, and its loss."""
    return {
        "accuracy": scores.argmax(1) == labels,
        "loss": cross_entropy(scores, labels),
    }


class _Metrics(PerSample):
    def __call__(self, params: Tree, eval_data: Tree) -> dict[str, Any]:
        scores, y = dense(params, eval_data["x"]), eval_data["y"]
        loss = cross_entropy(scores, y).mean()
        return {"accuracy": accuracy(scores, y), "loss": loss}

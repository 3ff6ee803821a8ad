"""Per-client metrics: evaluation of a model on a set of samples of each client.

Metrics may be any function of a whole set, so sets are not padded: sets of one length are
evaluated side by side, some at a time, and every length costs a compilation. Metrics that are
means over samples are computed on the samples of all clients in one row, with a single
compilation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Int

from focusfl.core.tree import Tree

SAMPLES_AT_ONCE = 1000  # samples evaluated together, unless a single set has more

Evaluate = Callable[[Tree, Tree], dict[str, Any]]  # (model, samples) -> metrics


@dataclass(frozen=True)
class PerSample:
    """A `metrics_fn` whose metrics are means over samples.

    It serves as any other, and per_client=True compiles it once instead of once for every
    number of samples that clients have.

    Args:
        each: (model, samples) -> a dict of arrays of shape (samples,).

    Raises:
        ValueError: When it is called, if `each` gives something else.
    """

    each: Evaluate

    def __call__(self, x: Tree, samples: Tree) -> dict[str, Any]:
        metrics, count = self.each(x, samples), length(samples)
        if not isinstance(metrics, Mapping):
            raise ValueError(f"each must give a dict of arrays; got {metrics!r:.60}.")
        for name, values in metrics.items():
            if np.shape(values) != (count,):
                raise ValueError(
                    f"each must give a number for every sample; {name!r} has shape "
                    f"{np.shape(values)} for {count}."
                )
        return {name: values.mean() for name, values in metrics.items()}


def length(samples: Tree) -> int:
    """Count samples, which lie along the first axis of every leaf."""
    import jax

    return len(jax.tree.leaves(samples)[0])


def unstacked(samples: Tree, lengths: Int[np.ndarray, " clients"]) -> list[Tree]:
    """Split leaves (clients, largest length, ...) into each client's samples without padding."""
    import jax

    return [
        jax.tree.map(lambda a, i=i, n=n: a[i, :n], samples) for i, n in enumerate(lengths.tolist())
    ]


def check(check_set: Callable[[Tree, Tree, str], None], x: Tree, clients: Sequence[Tree]) -> None:
    """Call a check with a model and a set of every length, and the words for that set."""
    for count, samples in {length(samples): samples for samples in clients}.items():
        check_set(x, samples, f"a client's {count} samples")


def laid_out(clients: Sequence[Tree], by_sample: bool) -> Tree:
    """Lay out the sets of clients for `evaluate_samples` (by_sample) or `evaluate_sets`."""
    import jax

    lengths = np.array([length(samples) for samples in clients])
    if by_sample:
        whole, size = lengths.sum(), min(SAMPLES_AT_ONCE, lengths.sum())
        owner = np.full(-(-whole // size) * size, len(clients))
        owner[:whole] = np.repeat(np.arange(len(clients)), lengths)
        places = np.minimum(np.arange(len(owner)), whole - 1).reshape(-1, size)
        samples = jax.tree.map(lambda *a: np.concatenate(a)[places], *clients)
        counts = lengths.astype(np.int32)
        return {"samples": samples, "owner": owner.astype(np.int32), "counts": counts}
    groups = [np.flatnonzero(lengths == count) for count in np.unique(lengths)]
    sets = {  # jax sorts by key, which must not change the order
        f"{number:09}": jax.tree.map(lambda *a: np.stack(a), *(clients[i] for i in group.tolist()))
        for number, group in enumerate(groups)
    }
    return {"sets": sets, "place": np.argsort(np.concatenate(groups)).astype(np.int32)}


def evaluate_samples(each: Evaluate, x: Tree, laid: Tree) -> dict[str, Any]:
    """Compute means over the samples of each client: arrays of shape (clients,)."""
    import jax
    import jax.numpy as jnp

    owner, counts = laid["owner"], laid["counts"]

    def mean(values: Any) -> Any:
        real = jnp.promote_types(jnp.result_type(values.dtype, float), "float32")
        values = values.astype(real).ravel()
        segments = len(counts) + 1  # the last one is the padding
        return jax.ops.segment_sum(values, owner, segments)[:-1] / counts

    return jax.tree.map(mean, jax.lax.map(partial(each, x), laid["samples"]))


def evaluate_sets(evaluate: Evaluate, x: Tree, laid: Tree) -> dict[str, Any]:
    """Compute metrics of each client's set: arrays of shape (clients,)."""
    import jax
    import jax.numpy as jnp

    metrics, evaluate_set = [], partial(evaluate, x)
    for sets in laid["sets"].values():
        clients, count = jax.tree.leaves(sets)[0].shape[:2]
        some = max(1, SAMPLES_AT_ONCE // count)
        if some >= clients:  # without a loop, which takes long to compile
            metrics.append(jax.vmap(evaluate_set)(sets))
        else:
            metrics.append(jax.lax.map(evaluate_set, sets, batch_size=some))
    whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), *metrics)
    return {name: values[laid["place"]] for name, values in whole.items()}


def evaluate_one_by_one(evaluate: Evaluate, x: Tree, laid: Tree) -> dict[str, Any]:
    """Compute the same as `evaluate_sets` by a function that jax cannot trace."""
    import jax

    metrics = [
        evaluate(x, jax.tree.map(lambda a, i=i: a[i], sets))
        for sets in laid["sets"].values()
        for i in range(length(sets))
    ]
    whole = {name: np.array([values[name] for values in metrics]) for name in metrics[0]}
    return {name: values[np.asarray(laid["place"])] for name, values in whole.items()}

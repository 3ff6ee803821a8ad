"""What each client is evaluated on: sets of samples, of any lengths.

Metrics are functions of a whole set, which may be anything: they know of no padding, so
there is none. Sets of one length are evaluated side by side, some at a time; every
length costs a compilation. Metrics that are known to be means over samples are found of
all clients' samples in a row, at one compilation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Int

from focusfl.core.tree import Tree

SAMPLES_AT_ONCE = 1000  # samples evaluated together, if no single set has more

Evaluate = Callable[[Tree, Tree], dict[str, Any]]  # (model, samples) -> metrics


@dataclass(frozen=True)
class PerSample:
    """A `metrics_fn` that takes means over samples: made of what each of them gives.

    As good as any other; and per_client=True compiles it once, not for every
    number of samples that a client has.
    """

    each: Evaluate  # (model, samples) -> arrays of shape (samples,) by name

    def __call__(self, x: Tree, samples: Tree) -> dict[str, Any]:
        found, count = self.each(x, samples), length(samples)
        if not isinstance(found, Mapping):
            raise ValueError(f"each must give a dict of arrays; got {found!r:.60}.")
        for name, values in found.items():
            if np.shape(values) != (count,):
                raise ValueError(
                    f"each must give a number for every sample; {name!r} has shape "
                    f"{np.shape(values)} for {count}."
                )
        return {name: values.mean() for name, values in found.items()}


def length(samples: Tree) -> int:
    """How many samples there are."""
    import jax

    return len(jax.tree.leaves(samples)[0])


def unstacked(samples: Tree, lengths: Int[np.ndarray, " clients"]) -> list[Tree]:
    """Each client's samples, of leaves (clients, most, ...), without their padding."""
    import jax

    return [
        jax.tree.map(lambda a, i=i, n=n: a[i, :n], samples) for i, n in enumerate(lengths.tolist())
    ]


def check(one: Callable[[Tree, Tree, str], None], x: Tree, clients: Sequence[Tree]) -> None:
    """Raise unless a model can be evaluated on sets of all these lengths."""
    for count, samples in {length(samples): samples for samples in clients}.items():
        one(x, samples, f"a client's {count} samples")


def laid_out(clients: Sequence[Tree], by_sample: bool) -> Tree:
    """Lay clients' sets out for `evaluate_samples`, or for `evaluate_sets`."""
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
    stacked, order = {}, []
    for count in np.unique(lengths).tolist():
        own = np.flatnonzero(lengths == count)
        leaves = [clients[i] for i in own.tolist()]
        stacked[str(count)] = jax.tree.map(lambda *a: np.stack(a), *leaves)
        order.append(own)
    place = np.argsort(np.concatenate(order)).astype(np.int32)
    return {"sets": stacked, "place": place}


def evaluate_samples(each: Evaluate, x: Tree, laid: Tree) -> dict[str, Any]:
    """Means over every client's samples: arrays of shape (clients,)."""
    import jax
    import jax.numpy as jnp

    owner, counts = laid["owner"], laid["counts"]

    def mean(values: Any) -> Any:
        real = jnp.promote_types(jnp.result_type(values.dtype, float), "float32")
        values = values.astype(real).ravel()
        many = len(counts) + 1  # the last is nobody, who has the padding
        return jax.ops.segment_sum(values, owner, many)[:-1] / counts

    return jax.tree.map(mean, jax.lax.map(partial(each, x), laid["samples"]))


def evaluate_sets(evaluate: Evaluate, x: Tree, laid: Tree) -> dict[str, Any]:
    """Metrics of every client's set: arrays of shape (clients,)."""
    import jax
    import jax.numpy as jnp

    found = []
    for count, own in _by_length(laid):
        one, some = partial(evaluate, x), max(1, SAMPLES_AT_ONCE // count)
        if some >= length(own):  # without a loop, which takes long to compile
            found.append(jax.vmap(one)(own))
        else:
            found.append(jax.lax.map(one, own, batch_size=some))
    whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)
    return {name: values[laid["place"]] for name, values in whole.items()}


def evaluate_one_by_one(evaluate: Evaluate, x: Tree, laid: Tree) -> dict[str, Any]:
    """The same of functions that jax cannot look into."""
    import jax

    found = [
        evaluate(x, jax.tree.map(lambda a, i=i: a[i], own))
        for _, own in _by_length(laid)
        for i in range(length(own))
    ]
    whole = {name: np.array([one[name] for one in found]) for name in found[0]}
    return {name: values[np.asarray(laid["place"])] for name, values in whole.items()}


def _by_length(laid: Tree) -> list[tuple[int, Tree]]:
    """In the order in which they were laid out, which jax does not keep."""
    return sorted((int(count), own) for count, own in laid["sets"].items())

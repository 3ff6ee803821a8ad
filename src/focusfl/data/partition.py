"""Split samples over clients: for each client the numbers of its samples.

Parts are disjoint, and together they are all samples.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from focusfl.core import random as keys
from focusfl.core.validation import (
    check_count,
    check_finite,
    check_flag,
    check_one_of,
    check_share,
    is_number,
    shown,
)

Parts = list[Int[np.ndarray, "_"]]  # the samples of each client, in increasing order  # noqa: F821
Labels = Shaped[np.ndarray, " samples"]


def iid(n: int, num_clients: int, seed: int) -> Parts:
    """Split n samples over clients at random, equally many for each.

    Args:
        n: number of samples.
        num_clients: number of clients.
        seed: of the order.

    Raises:
        ValueError: If there are fewer samples than clients.
    """
    _check_enough(n, num_clients)
    return _sorted(np.array_split(_rng(seed, "iid").permutation(n), num_clients))


def dirichlet(labels: Labels, num_clients: int, alpha: float | int, seed: int) -> Parts:
    """Split each class over clients in proportions drawn from Dirichlet(alpha, ..., alpha).

    Yurochkin et al. 2019, https://arxiv.org/abs/1905.12022. Clients have different numbers
    of samples.

    Args:
        labels: of samples, (samples,).
        num_clients: number of clients.
        alpha: positive; the smaller it is, the fewer classes a client has.
        seed: of the proportions and of the order of samples.

    Raises:
        ValueError: If a client would have no samples, or there are fewer samples than
            clients.
    """
    labels = _check_labels(labels, num_clients, alpha)
    rng = _rng(seed, "dirichlet")
    kinds = len(np.unique(labels))
    parts = _deal(labels, rng.dirichlet(np.full(num_clients, alpha), kinds).T, rng)
    if empty := [i for i, part in enumerate(parts) if not len(part)]:
        clients = ", ".join(map(str, empty[:8])) + ", ..." * (len(empty) > 8)
        raise ValueError(
            f"every client must have data; got none for {clients} of {len(parts)}. Use a larger "
            "alpha, dirichlet_balanced, fewer clients or another seed."
        )
    return _sorted(parts)


def dirichlet_balanced(
    labels: Labels, num_clients: int, alpha: float | int, seed: int, drop_rest: bool = False
) -> Parts:
    """Draw a mix of classes for each client, and give all clients equally many samples.

    Mixes are drawn from Dirichlet(alpha * share of each class), and each class is split in
    proportion to them. Clients with more than n / num_clients samples then give the rest, at
    random, to the others. Where n is not a multiple of num_clients, some clients keep one
    sample more; `drop_rest` leaves these samples out instead.

    Args:
        labels: of samples, (samples,).
        num_clients: number of clients.
        alpha: positive; the smaller it is, the fewer classes a client has.
        seed: of the mixes and of the order of samples.
        drop_rest: whether to leave out samples that do not divide evenly.

    Raises:
        ValueError: If there are fewer samples than clients.
    """
    labels = _check_labels(labels, num_clients, alpha)
    check_flag("drop_rest", drop_rest)
    rng = _rng(seed, "dirichlet_balanced")
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    parts = _deal(labels, rng.dirichlet(alpha * share, num_clients), rng)
    size, rest = divmod(len(labels), num_clients)
    sizes = np.full(num_clients, size)
    if not drop_rest:
        most = np.argsort([-len(part) for part in parts], kind="stable")
        sizes[most[:rest]] += 1  # the fewest samples move
    parts = [rng.permutation(part) for part in parts]
    heads = [part[:size] for part, size in zip(parts, sizes, strict=True)]
    rest_of = [part[size:] for part, size in zip(parts, sizes, strict=True)]
    needs = sizes - [len(head) for head in heads]
    gifts = np.split(rng.permutation(np.concatenate(rest_of)), np.cumsum(needs))
    return _sorted(map(np.append, heads, gifts))


def shards(labels: Labels, num_clients: int, per_client: int, seed: int) -> Parts:
    """Cut the samples, sorted by label, into shards, and give each client some at random.

    McMahan et al. 2017, https://arxiv.org/abs/1602.05629: few classes per client.

    Args:
        labels: of samples, (samples,).
        num_clients: number of clients.
        per_client: number of shards of a client.
        seed: of which client has which shards.

    Raises:
        ValueError: If there are fewer samples than shards.
    """
    labels = _check_labels(labels, num_clients)
    check_count("per_client", per_client)
    _check_enough(len(labels), num_clients * per_client, "shards")
    shards = np.array_split(np.argsort(labels, kind="stable"), num_clients * per_client)
    hands = _rng(seed, "shards").permutation(len(shards)).reshape(num_clients, per_client)
    return _sorted(np.concatenate([shards[i] for i in hand]) for hand in hands)


def by_label(labels: Labels, num_clients: int) -> Parts:
    """Cut the samples, sorted by label, into an equal part for each client.

    Raises:
        ValueError: If there are fewer samples than clients.
    """
    labels = _check_labels(labels, num_clients)
    return _sorted(np.array_split(np.argsort(labels, kind="stable"), num_clients))


def natural(groups: Labels) -> Parts:
    """Make one client of each group, such as the patients of one hospital."""
    groups = _check_labels(groups, 1, name="groups")
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]


SPLITS = ("by_label", "iid", "dirichlet", "dirichlet_balanced")


def deal(labels: Labels, split: str, num_clients: int, alpha: float | int, seed: int) -> Parts:
    """Split samples over clients by one of SPLITS, which are functions of this module.

    Args:
        labels: of samples, (samples,).
        split: by_label, iid, dirichlet or dirichlet_balanced.
        num_clients: number of clients.
        alpha: of the Dirichlet splits; a smaller one is more uneven.
        seed: of what is drawn.

    Raises:
        ValueError: If an argument is out of its range, or a client would have no samples.
    """
    check_one_of("split", split, SPLITS)
    check_count("num_clients", num_clients)
    check_count("seed", seed, least=0)
    if split == "by_label":
        return by_label(labels, num_clients)
    if split == "iid":
        return iid(len(labels), num_clients, seed)
    law = dirichlet if split == "dirichlet" else dirichlet_balanced
    return law(labels, num_clients, alpha, seed)


def hold_out(groups: Labels, share: float | int, seed: int) -> Bool[np.ndarray, " samples"]:
    """Mark a random share of every group, rounded, to be held out for evaluation.

    Args:
        groups: the group of each sample, such as its hospital.
        share: of every group, at least 0 and below 1.
        seed: of which samples are held out.

    Raises:
        ValueError: If share is out of its range.
    """
    check_share("share", share, whole=False)
    groups = _check_labels(groups, 1, name="groups")
    is_test, rng = np.zeros(len(groups), bool), _rng(seed, "hold_out")
    for group in np.unique(groups):
        members = rng.permutation(np.flatnonzero(groups == group))
        is_test[members[: round(share * len(members))]] = True
    return is_test


def counts(labels: Labels, parts: Parts) -> Int[np.ndarray, "clients classes"]:
    """Count the samples of each client and class, as `participation.rarity` takes them."""
    kinds, label = np.unique(_check_labels(labels, 1), return_inverse=True)
    return np.stack([np.bincount(label[part], minlength=len(kinds)) for part in parts])


class Stacked(NamedTuple):
    """The samples of all clients in arrays with clients along the first axis."""

    arrays: tuple[Shaped[np.ndarray, "clients rows ..."], ...]  # 0 where there is no sample
    mask: Bool[np.ndarray, "clients rows"]  # true where there is a sample
    lengths: Int[np.ndarray, " clients"]  # number of samples of each client


def stack(parts: Parts, *arrays: Shaped[np.ndarray, "samples ..."]) -> Stacked:
    """Stack the samples of all clients, padded to the client with the most samples.

    Args:
        parts: for each client the numbers of its samples.
        arrays: of all samples, (samples, ...) each.

    Raises:
        ValueError: If parts or arrays do not fit each other, or a client has no samples.
    """
    if not isinstance(parts, list | tuple) or not all(
        isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "iu"
        for part in parts
    ):
        raise ValueError(
            "parts must be a list with an array of sample numbers for each client; "
            f"got {shown(parts)}."
        )
    sizes = {len(array) for array in arrays}
    first = min((int(part.min(initial=0)) for part in parts), default=0)
    last = max((int(part.max(initial=-1)) for part in parts), default=-1)
    if len(sizes) != 1 or last >= min(sizes) or first < 0:
        raise ValueError(
            "arrays must have a row per sample, equally many each; got "
            f"{[len(array) for array in arrays]} rows for parts that reach from sample "
            f"{first} to {last}."
        )
    if not parts or not all(map(len, parts)):
        raise ValueError(
            "parts must have samples for every client; got "
            f"{[len(part) for part in parts]}. Leave clients without data out."
        )
    lengths = np.array([len(part) for part in parts])
    mask = np.arange(lengths.max()) < lengths[:, None]
    samples = np.concatenate(parts)
    padded = []
    for array in arrays:
        out = np.zeros((*mask.shape, *array.shape[1:]), array.dtype)
        out[mask] = array[samples]
        padded.append(out)
    return Stacked(tuple(padded), mask, lengths)


def _deal(labels, mixes: np.ndarray, rng) -> list[np.ndarray]:
    """Split each class at random, in proportion to the mixes (clients, classes)."""
    pieces = []  # by class, then by client
    for kind, mix in zip(np.unique(labels), mixes.T, strict=True):
        members = rng.permutation(np.flatnonzero(labels == kind))
        # With a small alpha the mixes of a class can all round to 0.
        mix = mix if mix.sum() > 0 else np.ones(len(mix))
        ends = np.rint(np.cumsum(mix)[:-1] / mix.sum() * len(members)).astype(int)
        pieces.append(np.split(members, ends))
    return [np.concatenate(part) for part in zip(*pieces, strict=True)]


def _sorted(parts) -> Parts:
    return [np.sort(part) for part in parts]


def _rng(seed, how):
    return keys.rng(seed, "split", how)


def _check_labels(value, num_clients, alpha: Any = 1, name="labels"):
    """Return labels as an array; raise ValueError unless they and alpha can be split."""
    try:
        labels = np.asarray(value)
    except (TypeError, ValueError):  # ragged
        labels = np.empty((0, 0))
    words = labels.ndim == 1 and all(isinstance(label, str) for label in labels)
    if labels.dtype.kind == "O" and words:
        labels = labels.astype(str)  # as pandas has them
    wrong = labels.dtype.kind not in "biufUS"
    if labels.ndim != 1 or not len(labels) or wrong:
        raise ValueError(
            f"{name} must be a list with one number or word per sample; got {shown(value)}."
        )
    check_finite(name, labels, ("sample",))
    _check_enough(len(labels), num_clients)
    if not is_number(alpha) or not 0 < alpha < np.inf:
        raise ValueError(
            f"alpha must be positive; got {shown(alpha)}. Use by_label for the most "
            "uneven split and iid for the most even one."
        )
    return labels


def _check_enough(n: Any, num_clients: Any, what: str = "clients"):
    check_count("n", n)
    check_count("num_clients", num_clients)
    if n < num_clients:
        raise ValueError(
            f"there must be a sample for each of the {num_clients} {what}; got {n}: "
            f"{what[:-1]} {n} would have none. Use at most {n} {what}."
        )

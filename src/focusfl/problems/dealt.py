"""A data set, named by a word or a file, dealt out to clients."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from focusfl import data
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, shown
from focusfl.data import Samples
from focusfl.problems.vision import MEAN, STD

SETS = ("digits", "cifar10")
TEST_SHARE = 0.2  # of the samples of each class, or client, where no tests are given
CLIENTS = 10  # where the data do not say


class Deal(NamedTuple):
    """How samples come to clients, and what is kept for tests."""

    num_clients: int | None
    split: str | None
    alpha: float
    test_share: float | None
    seed: int


class Dealt(NamedTuple):
    """Everybody's samples, x and y, and those for tests."""

    clients: list[Tree]
    tests: Tree
    classes: int
    mean: tuple[float, ...]  # of each channel, in training
    std: tuple[float, ...]


def dealt(name: str, deal: Deal, data_dir: str | None) -> Dealt:
    """Load a data set and deal it out; ValueError says what does not fit."""
    check_count("seed", deal.seed, least=0)
    train, test = _sets(name, deal, data_dir)
    mean, std = (MEAN, STD) if name == "cifar10" else standard(train.x)
    unit = 255.0 if name == "cifar10" else 1.0
    return Dealt(
        [{"x": train.x[part], "y": train.y[part]} for part in _parts(train, deal)],
        {"x": test.x, "y": test.y},
        int(max(train.y.max(), test.y.max())) + 1,
        tuple(unit * a for a in mean),
        tuple(unit * a for a in std),
    )


def _sets(name: str, deal: Deal, data_dir: str | None) -> tuple[Samples, Samples]:
    """Samples for training and for tests."""
    if not isinstance(name, str) or name not in SETS and not name.endswith(".npz"):
        raise ValueError(
            f"data must be {', '.join(SETS)} or the name of an .npz file; got {shown(name)}."
        )
    if name == "cifar10":
        if deal.test_share is not None:
            raise ValueError("cifar10 has images for tests; leave test_share out.")
        images = data.cifar10(data_dir)
        train = Samples(images.train_x, images.train_y)
        return train, Samples(images.test_x, images.test_y)
    whole = data.digits() if name == "digits" else data.read_samples(Path(name))
    share = TEST_SHARE if deal.test_share is None else deal.test_share
    groups = whole.y if whole.client is None else whole.client
    held = data.hold_out(groups, share, deal.seed)
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


def _parts(train: Samples, deal: Deal) -> list[np.ndarray]:
    """Who has which samples."""
    if train.client is None or deal.split is not None:
        many = CLIENTS if deal.num_clients is None else deal.num_clients
        split = "dirichlet_balanced" if deal.split is None else deal.split
        return data.deal(train.y, split, many, deal.alpha, deal.seed)
    parts = data.natural(train.client)
    if deal.num_clients not in (None, len(parts)):
        raise ValueError(
            f"num_clients must be {len(parts)}, or left out: so many clients are named "
            f"in the data; got {deal.num_clients}. A split deals samples out anew."
        )
    return parts


def standard(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel; 1 where it does not vary but by rounding."""
    channels = x.reshape(-1, x.shape[-1])
    mean, std = channels.mean(0, dtype=float), channels.std(0, dtype=float)
    std = np.where(std > 1e-6 * abs(mean), std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())

"""Two federations of hospitals as FLamby's benchmark has them: data, splits, budgets.

Terrail et al. NeurIPS 2022. https://arxiv.org/abs/2210.04620
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from focusfl import data
from focusfl.core.validation import check_one_of
from focusfl.data.places import Place

TRAIN_SHARE = 0.66  # of every hospital's patients, of heart disease
SPLIT_SEED = 43
UPDATES = 100  # local steps of a round
TINY = np.float32(1e-9)  # added to deviations


class Part(NamedTuple):
    """Some patients, in single precision as FLamby computes."""

    x: Float[np.ndarray, "patients features"]  # a column of ones at the end
    event: Float[np.ndarray, " patients"]  # 1: ill, or died
    time: Float[np.ndarray, " patients"]  # days, 0 where nobody counts them


@dataclass(frozen=True, eq=False)
class Federation:
    """Hospitals with patients to train on and to be judged by, and what may be spent.

    `pooled` is everybody in one place, which has other means and deviations.
    """

    name: str
    train: tuple[Part, ...]
    test: tuple[Part, ...]
    pooled: tuple[Part, Part]
    batch: int
    epochs: int  # of those who train alone, or all in one place
    samples: int  # for training, as FLamby counts them for `rounds`
    ahead: bool  # whether workers fetched batches ahead where the table was made

    @property
    def rounds(self) -> int:
        """So many that a client sees its data as often as in all the epochs."""
        batches = self.samples // len(self.train) // self.batch
        return batches * self.epochs // UPDATES

    @property
    def survival(self) -> bool:
        """Whether it asks how long patients live; else, whether they are ill."""
        return bool(self.pooled[0].time.any())


def federation(name: str, data_dir: Place = None) -> Federation:
    """Load one: heart (four hospitals) or tcga (six regions)."""
    check_one_of("federation", name, FEDERATIONS)
    return FEDERATIONS[name](data_dir)


def federations(names: Sequence[str], data_dir: Place = None) -> list[Federation]:
    """Load several, each once."""
    if not names:
        known = ", ".join(FEDERATIONS)
        raise ValueError(f"name at least one table of {known}; got none.")
    return [federation(name, data_dir) for name in dict.fromkeys(names)]


def heart(data_dir: Place = None) -> Federation:
    """Fed-Heart-Disease. Features are standardised hospital by hospital; those of the
    pooled patients over all of them, so that the two see different numbers."""
    table = data.heart_disease(data_dir)
    train = np.concatenate([split(table.y[table.center == i]) for i in range(len(table.names))])
    x, zero = table.x.astype(np.float32), np.zeros(len(table.y))
    apart = x.copy()
    for i in range(len(table.names)):
        mine = table.center == i
        apart[mine] = _standardised(x[mine], x[mine & train])
    pooled = _standardised(x, x[train])
    return _federation(
        "heart", (apart, pooled), (table.y, zero), table.center, train,
        (4, 50, 486, False),
    )  # fmt: skip


def tcga(data_dir: Place = None) -> Federation:
    """Fed-TCGA-BRCA, its features as they are."""
    table = data.tcga_brca(data_dir)
    return _federation(
        "tcga", (table.x, table.x), (table.event, table.time), table.region,
        table.train, (8, 30, 866, True),
    )  # fmt: skip


FEDERATIONS = {"heart": heart, "tcga": tcga}


def split(ill: Float[np.ndarray, " patients"]) -> Bool[np.ndarray, " patients"]:
    """Which of one hospital's patients are to train on: two thirds of the ill and of
    the well, by the draws of scikit-learn's train_test_split.

    Of all alike where fewer than three are ill, or well.
    """
    rng, total = np.random.RandomState(SPLIT_SEED), len(ill)
    tests = int(np.ceil((1 - TRAIN_SHARE) * total))
    train, groups = np.ones(total, bool), [ill == 0, ill != 0]
    sizes = np.array([group.sum() for group in groups])
    if sizes.min() < 3:
        train[rng.permutation(total)[:tests]] = False
        return train
    first = _shares(sizes, int(TRAIN_SHARE * total), rng)
    second = _shares(sizes - first, tests, rng)
    for group, size, start, count in zip(groups, sizes, first, second, strict=True):
        drawn = np.flatnonzero(group)[rng.permutation(size)]
        train[drawn[start : start + count]] = False
    return train


def _shares(
    sizes: Int[np.ndarray, " groups"], total: int, rng: np.random.RandomState
) -> Int[np.ndarray, " groups"]:
    """So many of each group that they are `total`, in proportion; ties by lot."""
    exact = sizes / sizes.sum() * total
    shares = np.floor(exact).astype(int)
    rest = exact - shares
    for value in sorted(set(rest.tolist()), reverse=True):
        tied = np.flatnonzero(rest == value)
        missing = min(len(tied), total - shares.sum())
        if missing == 0:
            break
        shares[rng.choice(tied, missing, replace=False)] += 1
    return shares


def _standardised(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    return (x - by.mean(0)) / (by.std(0, ddof=1) + TINY)


def _federation(
    name: str,
    features: tuple[np.ndarray, np.ndarray],
    outcome: tuple[np.ndarray, np.ndarray],
    center: np.ndarray,
    train: np.ndarray,
    budget: tuple[int, int, int, bool],
) -> Federation:
    """Cut tables up: features apart and pooled, what became of patients, and where."""

    def part(x: np.ndarray, rows: np.ndarray) -> Part:
        whole = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        columns = (column[rows].astype(np.float32) for column in (whole, *outcome))
        return Part(*columns)

    apart, pooled = features
    centers = [center == i for i in range(center.max() + 1)]
    return Federation(
        name,
        tuple(part(apart, mine & train) for mine in centers),
        tuple(part(apart, mine & ~train) for mine in centers),
        (part(pooled, train), part(pooled, ~train)),
        *budget,
    )

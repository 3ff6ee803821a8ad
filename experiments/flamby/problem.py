"""FLamby's two losses on batches that are known before a run begins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from flamby.federations import UPDATES, Federation, Part
from flamby.torch_random import TorchRandom
from jaxtyping import Float

from focusfl import data
from focusfl.data.streams import Positions
from focusfl.problems import Objective, Problem

Model = Float[np.ndarray, " features"]
Batches = list[Positions]  # one client's, in the order it takes them


@dataclass(frozen=True)
class Told(Objective):
    """The loss of a batch that a table names: by cross-entropy, or by Cox's model.

    A batch has its own risk sets, as in FLamby; of patients of the same day the later
    in the batch has the earlier at risk.
    """

    survival: bool
    stochastic = True  # a batch has a number

    def grad(self, x, data, batch):
        rows, share = data["rows"][batch.number], data["share"][batch.number]
        A, event, time = (data[name][rows] for name in ("A", "event", "time"))
        scores, weight = A @ x, event * share
        if not self.survival:
            chance = 1 / (1 + scores.__array_namespace__().exp(-scores))
            return (chance * share - weight) @ A
        hazard, _ = _at_risk(scores, time, share)
        return (weight @ (hazard / hazard.sum(1)[:, None]) - weight) @ A

    def evaluate(self, x, eval_data):
        scores, share = eval_data["A"] @ x, eval_data["share"]
        numbers = scores.__array_namespace__()
        if self.survival:
            hazard, top = _at_risk(scores, eval_data["time"], share)
            losses = eval_data["event"] * (numbers.log(hazard.sum(1)) + top - scores)
        else:
            losses = numbers.logaddexp(0 * scores, scores) - eval_data["event"] * scores
        return {"loss": share @ losses}


def _at_risk(scores, time, share):
    """Row j: the hazards of those alive when j was last seen, over exp of the largest;
    and its logarithm."""
    numbers, place = scores.__array_namespace__(), np.arange(len(scores))
    before = place[None, :] <= place[:, None]
    there = (time[None, :] > time[:, None]) | ((time[None, :] == time[:, None]) & before)
    there = (there & (share > 0)[None, :]) | (place[None, :] == place[:, None])
    alive = numbers.where(there, scores[None, :], -numbers.inf)
    top = alive.max(1)
    return numbers.exp(alive - top[:, None]), top


@dataclass(frozen=True, eq=False)
class TableOfBatches(Problem):
    """Hospitals that take their patients in the order of a table; each counts by how
    many it has."""

    parts: Sequence[Part]
    batches: Sequence[Batches]  # every client's
    start: Model
    survival: bool
    unit: bool = False  # whether weights are over their mean

    dtype = "float32"

    @property
    def weights(self):
        sizes = np.array([len(part.event) for part in self.parts], float)
        return sizes / sizes.mean() if self.unit else sizes

    @property
    def num_clients(self):
        return len(self.parts)

    @property
    def objective(self):
        return Told(self.survival)

    @property
    def x0(self):
        return self.start

    @cached_property
    def data(self):
        ends = np.cumsum([len(part.event) for part in self.parts])
        mine = np.split(np.arange(ends[-1]), ends[:-1])
        A, event, time = data.stack(
            mine, *map(np.concatenate, zip(*self.parts, strict=True))
        ).arrays
        size = max(len(rows) for own in self.batches for rows in own)
        steps = max(map(len, self.batches))
        rows = np.zeros((self.num_clients, steps, size), int)
        share = np.zeros(rows.shape, np.float32)
        for i, own in enumerate(self.batches):
            for k, some in enumerate(own):
                rows[i, k, : len(some)] = some
                share[i, k, : len(some)] = 1 / len(some)
        return {"A": A, "event": event, "time": time, "rows": rows, "share": share}

    @cached_property
    def eval_data(self):
        A, event, time = map(np.concatenate, zip(*self.parts, strict=True))
        share = np.full(len(event), 1 / len(event), np.float32)
        return {"A": A, "event": event, "time": time, "share": share}


def alone(federation: Federation, part: Part, seed: int) -> TableOfBatches:
    """One hospital, or all patients in one place: as many epochs as may be."""
    random = TorchRandom(seed)
    random.skip_seed()
    per_epoch = data.per_epoch(len(part.event), federation.batch)
    taken = _taken(random, len(part.event), federation.batch)
    batches = list(islice(taken, federation.epochs * per_epoch))
    start = begun(federation, seed)
    return TableOfBatches([part], [batches], start, federation.survival)


class Together:
    """All hospitals, again and again, as one process of FLamby runs its methods.

    One stream of random numbers serves all hospitals: who takes part, and in which
    order, is part of what everybody draws. It begins anew with every method. Workers
    that fetch batches ahead draw the first order of every hospital before that, from
    what the method before has left over: with them methods must follow each other as
    they did there, after the last hospital that trained alone.
    """

    def __init__(self, federation: Federation, seed: int):
        self.federation, self.seed = federation, seed
        self._random = TorchRandom(seed)
        for _ in range(2 * federation.epochs):  # an iterator's seed, an order's
            self._random.skip_seed()

    def next(self, visits: Sequence[Sequence[int]]) -> TableOfBatches:
        """The batches of a method that visits these hospitals, round after round."""
        federation, left = self.federation, self._random
        for _ in range(len(federation.test) + 1):  # each was judged by an iterator
            left.skip_seed()
        self._random = TorchRandom(self.seed)
        taken = []
        for part in federation.train:
            left.skip_seed()
            length = len(part.event)
            first = left.order(length) if federation.ahead else None
            taken.append(_taken(self._random, length, federation.batch, first))
        batches: list[Batches] = [[] for _ in taken]
        for ids in visits:
            for i in ids:
                batches[i] += islice(taken[i], UPDATES)
        start = begun(federation, self.seed)
        return TableOfBatches(federation.train, batches, start, federation.survival)


def begun(federation: Federation, seed: int) -> Model:
    """The model that all methods of a seed start from."""
    return TorchRandom(seed).linear(federation.pooled[0].x.shape[1] - 1)


def _taken(
    random: TorchRandom, length: int, batch: int, first: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Batch after batch without replacement; a new order when all have been seen."""
    order = random.order(length) if first is None else first
    while True:
        for begin in range(0, length, batch):
            yield order[begin : begin + batch]
        random.skip_seed()
        order = random.order(length)

"""What an implementation is checked on: a problem, and the ways of taking part in its rounds.

Imports numpy alone: it is also read in environments of other packages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

NUM_CLIENTS, DIM, LOCAL_STEPS, LR = 6, 4, 3, 0.03
STEPS = (1, 2, 3, 3, 4, 5)  # of the row in which clients differ; on average as many
CURVATURE = (1.0, 4.0)  # smallest and largest, of every client
DISAGREEMENT = 2.0  # how far clients' own optima are from each other, per coordinate
START = 3.0  # how far from the optimum it begins

CHANCES = (0.9, 0.2, 0.6, 0.3, 0.8, 0.4)  # of the coins, by client
BLOCKS = ((0, 1), (2, 3), (4, 5))
LOST = 0.2  # chance that a reply does not arrive
Draw = Callable[[np.random.Generator, int], list[int]]  # of the round's number


@dataclass(frozen=True)
class Problem:
    """Client i has f_i(x) = mean of (A[i] x - b[i])², the loss that many packages call
    MSE; F is the mean of all f_i, and its minimum x* is known."""

    A: np.ndarray  # clients x rows x dim
    b: np.ndarray  # clients x rows
    x0: np.ndarray  # where the model must begin
    lr: float  # the step of every local update
    local_steps: int  # of every participant in a round, unless steps are unequal
    steps: tuple[int, ...]  # the same for every client on its own

    @property
    def num_clients(self) -> int:
        return len(self.A)

    @property
    def dim(self) -> int:
        return self.A.shape[2]

    def gradient(self, client: int, x: np.ndarray) -> np.ndarray:
        """The gradient of one client's f at x."""
        return self.hessians[client] @ x - self.constants[client]

    @cached_property
    def hessians(self) -> np.ndarray:
        """Of every client's f."""
        return 2 * np.einsum("irj,irk->ijk", self.A, self.A) / self.A.shape[1]

    @cached_property
    def constants(self) -> np.ndarray:
        """Every client's gradient at 0, with the other sign."""
        return 2 * np.einsum("irj,ir->ij", self.A, self.b) / self.A.shape[1]

    @cached_property
    def optimum(self) -> np.ndarray:
        """x*, where the clients' gradients sum to 0."""
        flat = self.A.reshape(-1, self.dim)
        return np.linalg.solve(flat.T @ flat, flat.T @ self.b.ravel())

    def error(self, models: np.ndarray) -> Any:
        """How far models are from x*, as a share of how far x0 is."""
        far = np.linalg.norm(self.x0 - self.optimum)
        return np.linalg.norm(models - self.optimum, axis=-1) / far

    def at(self, lr: float) -> "Problem":
        """The same with another step."""
        return replace(self, lr=lr)

    def unequal(self) -> "Problem":
        """The same with steps that differ from client to client."""
        return replace(self, steps=STEPS)


def standard() -> Problem:
    """Make the problem of every check."""
    draw = np.random.default_rng(0)
    A = np.empty((NUM_CLIENTS, DIM, DIM))
    b = np.empty((NUM_CLIENTS, DIM))
    common = draw.normal(size=DIM)
    for i in range(NUM_CLIENTS):
        turn, _ = np.linalg.qr(draw.normal(size=(DIM, DIM)))
        curvature = np.geomspace(*CURVATURE, DIM)[draw.permutation(DIM)]
        A[i] = np.sqrt(DIM * curvature / 2)[:, None] * turn
        b[i] = A[i] @ (common + DISAGREEMENT * draw.normal(size=DIM))
    away = draw.normal(size=DIM)
    steps = (LOCAL_STEPS,) * NUM_CLIENTS
    problem = Problem(A, b, np.zeros(DIM), LR, LOCAL_STEPS, steps)
    x0 = problem.optimum + START * np.sqrt(DIM) * away / np.linalg.norm(away)
    return replace(problem, x0=x0)


class Row(NamedTuple):
    """One way of taking part."""

    name: str
    what: str
    draw: Draw
    loses: bool = False  # replies are lost
    unequal: bool = False  # clients take different numbers of local steps


def _some(draw: np.random.Generator, size: int) -> list[int]:
    return sorted(draw.choice(len(CHANCES), size, replace=False).tolist())


def _coins(draw: np.random.Generator, _: int) -> list[int]:
    """Draw until somebody is there: implementations differ in what a round of nobody does."""
    while not (heads := draw.random(len(CHANCES)) < CHANCES).any():
        pass
    return np.flatnonzero(heads).tolist()


def _everybody(*_) -> list[int]:
    return list(range(len(CHANCES)))


ROWS = {
    row.name: row
    for row in (
        Row("full", "everybody", _everybody),
        Row("uniform", "2 of 6, drawn anew", lambda draw, _: _some(draw, 2)),
        Row("coins", "a coin each, of chances .2 to .9", _coins),
        Row("blocks", "pairs in turn that never meet", lambda _, k: [*BLOCKS[k % 3]]),
        Row("sizes", "1 to 6, drawn anew, as many as drawn",
            lambda draw, _: _some(draw, int(draw.integers(1, len(CHANCES) + 1)))),
        Row("lost", "3 of 6; every fifth reply is lost",
            lambda draw, _: _some(draw, 3), loses=True),
        Row("steps", "everybody, with 1 to 5 local steps", _everybody, unequal=True),
    )
}  # fmt: skip


def schedule(row: Row) -> Iterator[tuple[list[int], list[int]]]:
    """Participants, and those of them whose reply is lost, round by round, without end.

    At least one reply arrives."""
    draw = np.random.default_rng([0, *row.name.encode()])
    number = 0
    while True:
        active = row.draw(draw, number)
        lost: list[int] = []
        if row.loses:
            gone = draw.random(len(active)) < LOST
            gone[draw.integers(len(active))] &= not gone.all()
            lost = [i for i, away in zip(active, gone, strict=True) if away]
        yield active, lost
        number += 1

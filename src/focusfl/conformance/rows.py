"""Who takes part, and whose reply is lost: the rows of a check. Imports numpy alone."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

CHANCES = (0.9, 0.2, 0.6, 0.3, 0.8, 0.4)  # of the coins, by client
BLOCKS = ((0, 1), (2, 3), (4, 5))
LOST = 0.2  # chance that a reply does not arrive
Draw = Callable[[np.random.Generator, int], list[int]]  # of the round's number


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
    """Nobody is no round: what to do then is a choice of each implementation's own."""
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


def schedule(row: Row, seed: int = 0) -> Iterator[tuple[list[int], list[int]]]:
    """Participants, and those of them whose reply is lost, round by round, without end.

    At least one reply arrives."""
    draw = np.random.default_rng([seed, *ROWS[row.name].name.encode()])
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

"""The cells: problem × participation, with what is measured there. Plain values.

Every cell belongs in public to one of two halves. Ideas may be tuned on `tuning`;
`reporting` is what is told of them.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from focusfl.core import random as keys
from focusfl.core.fingerprint import fingerprint
from focusfl.core.validation import unknown
from focusfl.participation import PARTICIPATION, Participation, Replay
from focusfl.suite.problems import CLIENTS

EDITION = 1  # raised when what is behind the words below changes
TUNING, REPORTING = SPLITS = ("tuning", "reporting")
ROUNDS, FLOOR, IMAGES = MEASURES = ("rounds", "floor", "images")
LONGEST = 4096  # rounds of any run

LAWS: dict[str, dict[str, Any]] = {
    "full": {"kind": "full"},
    "uniform": {"kind": "uniform", "m": 4},
    "coins": {"kind": "bernoulli", "p": np.linspace(0.05, 0.9, CLIENTS).tolist()},
    "markov": {"kind": "markov", "p": 0.5, "wake": 0.1},
    "cyclic": {"kind": "cyclic", "m": 4},
    "rare": {"kind": "rare", "p": 0.6, "gap": 50},
    "outage": {"kind": "outage", "p": 0.6, "away": 40},
}


class Cell(NamedTuple):
    """One problem under one law of participation."""

    problem: str
    law: str
    split: str  # tuning or reporting
    about: dict[str, Any]  # the problem
    who: dict[str, Any]  # the law
    measure: str = ROUNDS  # to the target; or the floor, or test error, in the end
    local_steps: int = 5
    rounds: int = LONGEST  # of a run, at most
    eval_every: int = 1  # rounds from one evaluation to the next

    @property
    def name(self) -> str:
        """Problem and law."""
        return f"{self.problem}/{self.law}"

    @property
    def identity(self) -> str:
        """A name for all that results in this cell follow from, but for the rule."""
        return fingerprint(EDITION, json.dumps(self))

    @property
    def participation(self) -> Participation:
        """The law of who takes part; made once in a process."""
        return _law(json.dumps(self.who))


@cache
def _law(text: str) -> Participation:
    options = json.loads(text)
    makers = {**PARTICIPATION, "rare": rare, "outage": outage}
    return makers[options.pop("kind")](**options)


def rare(p: float, gap: int) -> Replay:
    """Coins of chance p; but a quarter of the clients is there once in `gap` rounds,
    one after the other."""
    coins, rounds = _coins(p), np.arange(LONGEST)[:, None]
    often = 3 * CLIENTS // 4
    first = np.arange(CLIENTS - often) * gap // (CLIENTS - often)
    coins[:, often:] = rounds % gap == first
    return Replay(coins)


def outage(p: float, away: int) -> Replay:
    """Coins of chance p; one quarter of the clients after the other is away for so many
    rounds, so that one always is."""
    absent = np.arange(LONGEST)[:, None] // away % 4 == np.arange(CLIENTS) * 4 // CLIENTS
    return Replay(_coins(p) & ~absent)


def _coins(p: float) -> np.ndarray:
    return keys.rng(0, "suite", "coins").random((LONGEST, CLIENTS)) < p


def _over(
    problem: str, split: str, about: dict[str, Any], laws: Sequence[str] = (*LAWS,),
    **rest: Any,
) -> list[Cell]:  # fmt: skip
    """A problem under several laws."""
    return [Cell(problem, law, split, about, LAWS[law], **rest) for law in laws]


def _quadratics(condition: int, seed: int, **rest: Any) -> dict[str, Any]:
    return {"kind": "quadratics", "condition": condition, "seed": seed, **rest}


def _noisy(exact: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "noisy", "exact": exact, "scale": 0.1}


def _images(model: str, alpha: float) -> dict[str, Any]:
    return {"kind": "images", "model": model, "alpha": alpha}


RIDGE = {"kind": "ridge", "rows": 40, "seed": 0}
SOME = ("full", "uniform", "coins", "markov")
AT_THE_END: dict[str, Any] = {"measure": IMAGES, "rounds": 150, "eval_every": 5}
CELLS: list[Cell] = [
    *_over("easy", TUNING, _quadratics(10, 1)),
    *_over("alike-300", TUNING, _quadratics(300, 2, alike=True)),
    *_over("unequal-30", TUNING, _quadratics(10, 3, unequal=30)),
    *_over("labels", TUNING, {"kind": "labels", "seed": 4}),
    *_over("ridge", REPORTING, RIDGE),
    *_over("short", REPORTING, {"kind": "ridge", "rows": 10, "seed": 5}),
    *_over("ill", REPORTING, _quadratics(100, 6)),
    *_over("alike-1000", REPORTING, _quadratics(1000, 7, alike=True)),
    *_over("unequal-100", REPORTING, _quadratics(10, 8, unequal=100)),
    *_over("digits", REPORTING, {"kind": "written_digits"}),
    *_over("outliers", REPORTING, {"kind": "outliers", "seed": 11}),
    *_over("ridge-1", REPORTING, RIDGE, local_steps=1),
    *_over("ill-20", REPORTING, _quadratics(100, 10), local_steps=20),
    *_over("noisy-easy", TUNING, _noisy(_quadratics(10, 1)), SOME,
           measure=FLOOR, rounds=1024),
    *_over("noisy-ridge", REPORTING, _noisy(RIDGE), SOME, measure=FLOOR, rounds=1024),
    *_over("softmax-tuning", TUNING, _images("softmax", 0.5), ("coins", "markov"),
           **AT_THE_END),
    *_over("softmax", REPORTING, _images("softmax", 0.2), (*SOME, "outage"),
           **AT_THE_END),
    *_over("mlp", REPORTING, _images("mlp", 0.2), ("coins", "markov"),
           **AT_THE_END),
]  # fmt: skip
QUICK = ("easy/coins", "ridge/markov", "ridge/outage")  # one compiled program


def chosen(words: Sequence[str]) -> list[Cell]:
    """Cells by name, or by the name of a half, a problem, a law or a measure."""
    for word in words:
        if not any(word in _words(cell) for cell in CELLS):
            known = {name for cell in CELLS for name in _words(cell)}
            raise ValueError(unknown("cell", word, known))
    return [cell for cell in CELLS if {*words} & {*_words(cell)}]


def _words(cell: Cell) -> tuple[str, ...]:
    """What a cell may be chosen by."""
    quick = ("quick",) if cell.name in QUICK else ()
    return ("all", cell.split, cell.measure, cell.problem, cell.law, cell.name, *quick)

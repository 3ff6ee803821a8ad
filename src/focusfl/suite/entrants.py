"""Who takes part: the exact methods, and the baselines people know.

A method with a constant beside its step may enter with a few values of it; the best of
them counts in every cell, and the runs that it took are counted. One may take a single
local step where the cell has more.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from focusfl.algorithms import ALGORITHMS
from focusfl.core import Algorithm
from focusfl.core.validation import unknown
from focusfl.studies import parts


class Entrant(NamedTuple):
    """A method, and the constants that it may choose from."""

    name: str
    kind: str  # one of ALGORITHMS, or somebody's module:name
    variants: tuple[dict[str, Any], ...] = ({},)
    ours: bool = False  # whether it descends from FOCUS
    local_steps: int | None = None  # that it takes instead of the cell's

    def algorithms(self, folder: Path | None = None) -> list[Algorithm]:
        """The method, once with each of its constants; a user's own is in a folder."""
        if self.kind in ALGORITHMS:
            return [ALGORITHMS[self.kind](**options) for options in self.variants]
        make = parts.lookup(self.kind, ALGORITHMS, folder).make
        try:
            algorithms = make()
        except TypeError as error:
            raise ValueError(f"{self.kind}() does not work: {error}") from None
        if not isinstance(algorithms, list | tuple):
            algorithms = [algorithms]
        if not algorithms or not all(isinstance(each, Algorithm) for each in algorithms):
            raise ValueError(
                f"{self.kind} must give an Algorithm, or a list of them with several "
                f"constants; got {algorithms!r}."
            )
        return list(algorithms)


def _each(name: str, *values: Any) -> tuple[dict[str, Any], ...]:
    return tuple({name: value} for value in values)


_ALL = [
    Entrant("FOCUS", "focus", ({"memory": "last"},), ours=True),
    Entrant("FOCUS mean", "focus", ({"memory": "mean"},), ours=True),
    Entrant("Anchored FOCUS", "anchored_focus", ours=True),
    Entrant("T-FOCUS", "t_focus", ours=True),
    Entrant("T-SCAFFOLD 1-up", "t_scaffold", ({"option": "1-up"},), ours=True),
    Entrant("T-SCAFFOLD I", "t_scaffold", ({"option": 1},), ours=True),
    Entrant("T-SCAFFOLD II", "t_scaffold", ({"option": 2},), ours=True),
    Entrant("SCAFFOLD I", "scaffold", ({"option": 1},)),
    Entrant("SCAFFOLD II", "scaffold", ({"option": 2},)),
    Entrant("Scaffnew", "scaffnew"),
    Entrant("TAMUNA", "tamuna"),
    Entrant("Amplified SCAFFOLD", "amplified_scaffold", _each("gamma", 1.5, 2.0)),
    Entrant("MIFA", "mifa"),
    Entrant("MIFA 1-step", "mifa", local_steps=1),
    Entrant("FedVARP", "fedvarp"),
    Entrant("FedVARP 1-step", "fedvarp", local_steps=1),
    Entrant("FedDyn", "feddyn", _each("alpha", None, 0.1, 1.0)),
    Entrant("Fed-LT", "fedlt", _each("rho", None, 1.0, 10.0)),
    Entrant("FedADMM", "fedadmm", _each("rho", None, 0.1, 1.0)),
    Entrant("FedAvg", "fedavg"),
    Entrant("FedAU", "fedau"),
    Entrant("FedAWE", "fedawe"),
    Entrant("FedAdam", "fedadam", _each("server_lr", 0.01, 0.1)),
]
ENTRANTS: dict[str, Entrant] = {entrant.name: entrant for entrant in _ALL}


def place_of(name: str) -> int:
    """Where a method stands in tables; somebody's own after all others."""
    return [*ENTRANTS].index(name) if name in ENTRANTS else len(ENTRANTS)


def entered(words: Sequence[str]) -> list[Entrant]:
    """Entrants by name or kind, somebody's as module:name; all if none is named."""
    chosen: dict[str, Entrant] = {}
    for word in words:
        entrants = [e for e in ENTRANTS.values() if word in (e.name, e.kind)]
        if ":" in word:
            entrants = [Entrant(word, word)]
        if not entrants:
            known = [*ENTRANTS, *(e.kind for e in ENTRANTS.values())]
            raise ValueError(unknown("algorithm", word, known))
        chosen |= {entrant.name: entrant for entrant in entrants}
    return list((chosen or ENTRANTS).values())

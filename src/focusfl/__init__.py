"""Federated optimization that converges exactly, whatever clients show up."""

from typing import TYPE_CHECKING

from focusfl import data, mixing, participation, problems, theory
from focusfl.algorithms import *  # noqa: F403
from focusfl.algorithms import ALGORITHMS
from focusfl.core import Algorithm, Round
from focusfl.engines.loop import loop
from focusfl.engines.run import Diverged, Result

if TYPE_CHECKING:
    from focusfl.engines.simulate import simulate, sweep

__version__ = "0.1.0"
__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Diverged",
    "Result",
    "Round",
    "data",
    "loop",
    "mixing",
    "participation",
    "problems",
    "simulate",
    "sweep",
    "theory",
    *(kind.__name__ for kind in ALGORITHMS.values()),
]


def __getattr__(name: str):
    if name in ("simulate", "sweep"):  # jax is imported when it is first needed
        from focusfl.engines.simulate import simulate, sweep

        globals().update(simulate=simulate, sweep=sweep)
        return globals()[name]
    raise AttributeError(f"module 'focusfl' has no attribute {name!r}")

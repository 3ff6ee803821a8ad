"""Step sizes and rates of Theorem 1: as printed, and as its proof supports them.

Ying, Li, Yang. NeurIPS 2025. https://arxiv.org/abs/2503.20117
"""

import math
from typing import Literal, NamedTuple

from focusfl.core.validation import check_count, check_positive
from focusfl.participation import Marginals
from focusfl.theory.constants import Constants, check_alike

Regime = Literal["strongly convex", "PL", "non-convex"]
Reading = Literal["as printed", "as repaired", "with the dropped terms"]

NOTES: dict[tuple[Regime, Reading], str] = {
    ("strongly convex", "as printed"): (
        "mu/(9 N L^2) lacks q_min and q^(3/2)/(8 L (tau - 1)) is dropped; warm start only"
    ),
    ("strongly convex", "as repaired"): (
        "sufficient for Psi to contract; p = P(i in S) instead of q; warm start only"
    ),
    ("PL", "as printed"): (
        "two terms are not scale-invariant; the argument gives 1 - lr beta N / 4, not 1 - lr beta N"
    ),
    ("PL", "with the dropped terms"): "printed, and three that the proof uses",
    ("non-convex", "as printed"): "q^(3/2)/(8 L (tau - 1)) of the lemma is dropped",
    ("non-convex", "with the dropped terms"): "printed, and the one the lemma uses",
}


class StepSize(NamedTuple):
    """The largest step that a reading of the theorem allows."""

    regime: Regime
    reading: Reading
    terms: dict[str, float]  # the bounds it is the smallest of

    @property
    def lr(self) -> float:
        return min(self.terms.values())

    @property
    def binding(self) -> str:
        """The term that decides."""
        return min(self.terms, key=self.terms.__getitem__)

    @property
    def note(self) -> str:
        """What the errata say of this reading."""
        return NOTES[self.regime, self.reading]


def step_sizes(known: Constants, marginals: Marginals, local_steps: int) -> list[StepSize]:
    """Give the step of every regime the problem is known to be in, in every reading."""
    check_count("local_steps", local_steps)
    check_alike(known.weight, "the step of Theorem 1")
    L, N, more = known.L, known.N, local_steps - 1
    p, q = float(marginals.p.min()), float(marginals.q.min())

    def over(bound: float, count: int) -> float:
        return bound / count if count else math.inf  # one local step bounds nothing

    lemma = {"q^(3/2)/(8 L sqrt N)": q**1.5 / (8 * L * math.sqrt(N))}
    dropped = {"q^(3/2)/(8 L (tau-1))": over(q**1.5 / (8 * L), more)}
    out = []
    if known.mu:
        mu = known.mu
        printed = {
            "3 mu/(27 N L^2)": 3 * mu / (27 * N * L**2),
            "1/(3 L (tau-1))": over(1 / (3 * L), more),
            **lemma,
        }
        repaired = {
            "1/(3 mu)": 1 / (3 * mu),
            "1/(3 L (tau-1))": over(1 / (3 * L), more),
            "p/(20 L (tau-1))": over(p / (20 * L), more),
            "p/(14 N^2 L)": p / (14 * N**2 * L),
            "p/(3 N (8 L^2/mu + mu/2))": p / (3 * N * (8 * L**2 / mu + mu / 2)),
        }
        out += [
            StepSize("strongly convex", "as printed", printed),
            StepSize("strongly convex", "as repaired", repaired),
        ]
    if known.beta:
        beta = known.beta
        printed = {
            "3 q/(32 N)": 3 * q / (32 * N),
            "q/(12 beta N)": q / (12 * beta * N),
            "q/(16 L^2)": q / (16 * L**2),
            **lemma,
        }
        proof = {
            "1/(4 L N)": 1 / (4 * L * N),
            "1/(2 (tau-1) L N)": over(1 / (2 * L * N), more),
            **dropped,
        }
        out += [
            StepSize("PL", "as printed", printed),
            StepSize("PL", "with the dropped terms", printed | proof),
        ]
    printed = {
        "1/(2 L (tau-1))": over(1 / (2 * L), more),
        **lemma,
        "q/(16 L sqrt(2 N))": q / (16 * L * math.sqrt(2 * N)),
        "1/(4 L N)": 1 / (4 * L * N),
    }
    out += [
        StepSize("non-convex", "as printed", printed),
        StepSize("non-convex", "with the dropped terms", printed | dropped),
    ]
    return out


class Rate(NamedTuple):
    """A factor per round."""

    factor: float
    what: str  # the quantity that shrinks by it
    source: str


def rates(known: Constants, lr: float) -> list[Rate]:
    """Predict what a round of FOCUS multiplies errors by, in the regimes that hold.

    Theorem 1 says nothing of clients with weights.
    """
    check_positive("lr", lr)
    step = lr * known.total  # what a round moves along the gradient of F
    rows, alike = [], known.weight is None
    if known.mu and alike:
        contraction = 1 - step * known.mu / 2
        rows.append(Rate(contraction, "Psi >= |x - x*|^2", "Theorem 1, 1 - lr mu N / 2"))
    if known.mu_F:
        source = "gradient descent on F at small lr, 1 - lr N mu_F"
        rows.append(Rate(1 - step * known.mu_F, "|x - x*|", source))
    if known.beta and alike:
        printed, proved = 1 - step * known.beta, 1 - step * known.beta / 4
        source = "its proof gives 1 - lr beta N / 4 (errata A9)"
        rows.append(Rate(printed, "F - F*, as printed", "Theorem 1, 1 - lr beta N"))
        rows.append(Rate(proved, "F - F*, as proved", source))
    return rows

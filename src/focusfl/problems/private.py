"""Any problem whose clients show clipped gradients with noise: differential privacy.

Algorithms see a client's data through its gradients alone. So if these are private,
all that is made of them is: what is stored, pushed and learned. FOCUS stores the
gradient with its noise and pushes differences, in whose sum the noise of each client
is there once, however many rounds there were. See docs/privacy.md.
"""

from dataclasses import dataclass

import numpy as np

from focusfl import privacy
from focusfl.core import Drawn
from focusfl.core.validation import (
    check_is,
    check_not_negative,
    check_one_of,
    check_positive,
)
from focusfl.problems.around import ObjectiveAround, ProblemAround, with_noise
from focusfl.problems.clipping import LEVELS, check_level, clipped
from focusfl.problems.noisy import Noisy
from focusfl.problems.problem import Problem

STREAM = 0x6470  # of the noise, beside those that batches are drawn from


@dataclass(frozen=True)
class PrivateObjective(ObjectiveAround):
    """Another objective, whose gradients are clipped and carry noise, new each time."""

    level: str
    clip: float
    noise: float

    def grad(self, x, data, batch):
        drawn = isinstance(batch, Drawn)
        batch, noise = batch if drawn else (batch, batch)
        own = batch if self.exact.stochastic else None
        grad, most = clipped(self.exact, self.level, self.clip, x, data, own)
        return with_noise(grad, self.noise * most, noise, STREAM)


@dataclass(frozen=True, eq=False)
class Private(ProblemAround):
    """A problem whose clients clip their gradients and add Gaussian noise to them.

    Every gradient is one Gaussian mechanism; a run composes those of each client and
    gives epsilon: the worst client's and the median as `metrics["epsilon"]` and
    `metrics["epsilon/median"]`, everybody's as `clients_metrics["epsilon"]`.

    With a budget, a client takes part only as long as its epsilon stays within it;
    `clients_metrics["visits_left"]` says how often it still could. Without noise
    nothing is promised, and no epsilon is given.

    The noise of a simulation comes from its seed: it shows what privacy costs, and
    protects nobody from one who knows the seed. Metrics look at the data as they are.
    """

    clip: float | None = None  # the largest norm of a unit's gradient; must be given
    noise: float = 1.0  # standard deviation over what a unit can change; 0: none
    level: str = "record"  # whom it protects: a "record", or all that a "client" has
    delta: float = 1e-5  # the chance that epsilon does not bound
    budget: float | None = None  # the largest epsilon of a client; None: no end
    accountant: str = "pld"  # or "rdp", faster and less tight

    def __post_init__(self):
        check_is("exact", self.exact, Problem)
        if isinstance(self.exact, Private | Noisy):
            raise ValueError(
                "exact must be a problem without noise of its own, of which nobody "
                f"keeps account; got a {type(self.exact).__name__}."
            )
        check_not_negative("noise", self.noise)
        if self.clip is None:
            raise ValueError(
                "noise without clipping protects nobody, as one gradient may be of "
                "any size; give clip, the largest norm of a unit's gradient."
            )
        check_positive("clip", self.clip)
        check_one_of("level", self.level, LEVELS)
        privacy.check_delta(self.delta)
        check_one_of("accountant", self.accountant, privacy.ACCOUNTANTS)
        check_level(self.exact.objective, self.level)
        if self.budget is not None:
            check_positive("budget", self.budget)
            if not self.noise:
                raise ValueError(
                    f"a budget needs noise: without, one gradient costs any epsilon; "
                    f"got budget {self.budget:g} and noise 0."
                )

    def visits(self, local_steps: int, before: int = 0) -> int:
        """How often a client may take part within the budget, `before` gradients of a
        warm start aside; raise ValueError if not even once."""
        if self.budget is None:
            raise ValueError("there are visits within a budget; got none.")
        within = privacy.gradients_within(self.budget, self.noise, self.delta, self.accountant)
        if within < before + local_steps:
            cost = self.epsilons(np.array([before + local_steps]))[0]
            raise ValueError(
                f"budget must be at least {cost:.4g}, what one round costs a client "
                f"at noise {self.noise:g} with {local_steps} local steps; got "
                f"{self.budget:g}. More noise or fewer local steps cost less."
            )
        return (within - before) // local_steps

    def epsilons(self, gradients):
        """The epsilon of clients who have computed so many gradients each."""
        return privacy.epsilons(self.noise, gradients, self.delta, self.accountant)

    @property
    def dtype(self):  # type: ignore[override]
        return self.exact.dtype

    @property
    def why_not(self) -> str:
        """Why the simulator cannot run it; nothing if it can."""
        return getattr(self.exact, "why_not", "")

    @property
    def objective(self):
        clip, noise = float(self.clip or 0), float(self.noise)  # checked: none is None
        return PrivateObjective(self.exact.objective, self.level, clip, noise)

"""`Private`: a problem whose clients clip their gradients and add noise to them.

Algorithms see a client's data through its gradients alone. So if these are private, all
that is made of them is: what is stored, pushed and learned. FOCUS stores the gradient with
its noise and pushes differences, in whose sum each client's noise stands once, however many
rounds there were. See docs/privacy.md.
"""

from dataclasses import dataclass

import numpy as np

from focusfl.core.validation import check_not_negative, check_one_of, check_positive
from focusfl.privacy import accounting
from focusfl.privacy.clipping import LEVELS, check_level, clipped_gradient
from focusfl.problems.noise import ObjectiveWithNoise, ProblemWithNoise, add_noise

NOISE_STREAM = 0x6470  # keeps noise apart from the batches drawn with the same key


@dataclass(frozen=True)
class PrivateObjective(ObjectiveWithNoise):
    """An objective that clips the gradients of another one and adds new noise in every step."""

    level: str
    clip: float
    noise: float

    def grad(self, x, data, batch):
        # Of a simulation: fast, from a seed. A site's gradient is made by `mechanism`.
        exact_batch = batch if self.exact.stochastic else None
        grad, sensitivity = clipped_gradient(
            self.exact, self.level, self.clip, x, data, exact_batch
        )
        return add_noise(grad, self.noise * sensitivity, batch, NOISE_STREAM)


@dataclass(frozen=True, eq=False)
class Private(ProblemWithNoise):
    """A problem whose clients clip their gradients and add Gaussian noise to them.

    Every gradient is one Gaussian mechanism. The metrics of a run have the largest and the
    median epsilon of clients, `metrics["epsilon"]` and `metrics["epsilon/median"]`, and that
    of each client, `clients_metrics["epsilon"]`.

    With a budget, a client takes part only while its epsilon stays within it, and
    `clients_metrics["visits_left"]` is how many more rounds it could take part in. Without
    noise nothing is protected, and there is no epsilon.

    In a simulation the noise is floating-point normal noise from the seed: it shows what privacy
    costs, but hides nothing from a reader who knows the seed or sees a push. A deployed site makes
    its gradients by `focusfl.privacy.mechanism`. Metrics are those of the exact problem.

    Raises:
        ValueError: If clip is missing, a number is out of its range, or gradients of the
            problem cannot be clipped at this level.
    """

    clip: float | None = None  # the largest norm of a unit's gradient; must be given
    noise: float = 1.0  # standard deviation over what a unit can change; 0: none
    level: str = "record"  # whom it protects: a "record", or all that a "client" has
    delta: float = 1e-5  # the probability that epsilon does not bound
    budget: float | None = None  # the largest epsilon of a client; None: no limit
    accountant: str = "pld"  # or "rdp", faster and less tight

    def __post_init__(self):
        super().__post_init__()
        check_not_negative("noise", self.noise)
        if self.clip is None:
            raise ValueError(
                "noise without clipping protects nobody, as a gradient may be of any size; "
                "give clip, the largest norm of a unit's gradient."
            )
        check_positive("clip", self.clip)
        check_one_of("level", self.level, LEVELS)
        accounting.check_delta(self.delta)
        check_one_of("accountant", self.accountant, accounting.ACCOUNTANTS)
        check_level(self.exact.objective, self.level)
        if self.budget is not None:
            check_positive("budget", self.budget)
            if not self.noise:
                raise ValueError(
                    "a budget needs noise: without it one gradient costs any epsilon; got "
                    f"budget {self.budget:g} and noise 0."
                )

    def visits(self, local_steps: int, warm_start: int = 0) -> int:
        """Count the rounds that a client may take part in within the budget.

        Args:
            local_steps: gradients of a round.
            warm_start: gradients that every client computes before round 0.

        Raises:
            ValueError: If there is no budget, or it does not last for one round.
        """
        if self.budget is None:
            raise ValueError("visits are counted within a budget; this problem has none.")
        within = accounting.gradients_within(self.budget, self.noise, self.delta, self.accountant)
        if within < warm_start + local_steps:
            cost = self.epsilons(np.array([warm_start + local_steps]))[0]
            raise ValueError(
                f"budget must be at least {cost:.4g}, what one round costs a client at noise "
                f"{self.noise:g} with {local_steps} local steps; got {self.budget:g}. More "
                "noise or fewer local steps cost less."
            )
        return (within - warm_start) // local_steps

    def epsilons(self, gradients):
        """Compute the epsilon of clients from the number of gradients that each has computed."""
        return accounting.epsilons(self.noise, gradients, self.delta, self.accountant)

    @property
    def dtype(self):  # type: ignore[override]
        return self.exact.dtype

    @property
    def why_not(self) -> str:
        """Why the compiled simulator cannot run it; empty if it can."""
        return getattr(self.exact, "why_not", "")

    @property
    def objective(self):
        clip, noise = float(self.clip or 0), float(self.noise)  # clip is checked: never None
        return PrivateObjective(self.exact.objective, self.level, clip, noise)

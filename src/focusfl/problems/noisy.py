"""Any problem with noise on its gradients: where SG-FOCUS lives."""

from dataclasses import dataclass

from focusfl.core.validation import check_not_negative, shown
from focusfl.problems.around import ObjectiveAround, ProblemAround, with_noise
from focusfl.problems.problem import Problem


@dataclass(frozen=True)
class NoisyObjective(ObjectiveAround):
    """Another objective, whose gradients carry noise that is new in every step."""

    scale: float

    def grad(self, x, data, batch):
        return with_noise(self.exact.grad(x, data, None), self.scale, batch)


@dataclass(frozen=True, eq=False)
class Noisy(ProblemAround):
    """A problem whose clients see their gradients plus scale times normal noise."""

    scale: float  # standard deviation in every entry

    def __post_init__(self):
        if not isinstance(self.exact, Problem):
            raise ValueError(f"exact must be a Problem; got {shown(self.exact)}.")
        from focusfl.problems.private import Private

        if isinstance(self.exact, Private):
            raise ValueError(
                "exact must be a problem without noise; got a Private, whose epsilon "
                "a run would not count any more."
            )
        check_not_negative("scale", self.scale)

    @property
    def objective(self):
        return NoisyObjective(self.exact.objective, self.scale)

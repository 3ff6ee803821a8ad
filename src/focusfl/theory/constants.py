"""The constants of a problem that step sizes and rates are made of."""

from typing import NamedTuple

from focusfl.participation import Participation
from focusfl.problems import LeastSquares, Noisy, Problem, Quadratic

Quadratics = Quadratic | LeastSquares  # the f_i whose Hessians do not depend on x


class Constants(NamedTuple):
    """What is known of a problem; None where it does not hold or is not known."""

    L: float  # smoothness of every f_i
    mu: float | None  # strong convexity of every f_i
    L_F: float  # smoothness of F
    mu_F: float | None  # strong convexity of F
    N: int
    beta: float | None = None  # F has |grad F|^2 >= 2 beta (F - F*)
    weight: float | None = None  # of all clients together; None: all alike, N

    @property
    def total(self) -> float | int:
        """The sum of all weights: what FOCUS moves x by is lr times this, and a mean of
        gradients."""
        return self.N if self.weight is None else self.weight


def check_rounds(participation: Participation) -> None:
    """Raise where clients work on old models: theory here is of the newest."""
    if participation.asynchronous:
        raise ValueError(
            "theory is of rounds that begin at the newest model; under "
            f"{type(participation).__name__} clients work on the one they left with. "
            "Give lr as a number, or use Sync."
        )


def constants(problem: Problem) -> Constants:
    """Read the constants off a problem that states them."""
    problem = exact(problem)

    def stated(name: str) -> float | None:
        value = getattr(problem, name, None)
        return None if value is None else float(value)

    L, L_F = stated("L"), stated("L_F")
    if L is None:
        raise ValueError(
            f"the problem must state its smoothness L; {type(problem).__name__} does "
            "not. Use a quadratic, or give it a property L."
        )
    mu, mu_F = stated("mu"), stated("mu_F")
    beta = stated("beta")
    return Constants(
        L=L,
        mu=mu,
        L_F=L if L_F is None else L_F,  # F is at least as smooth as the f_i
        mu_F=mu if mu_F is None else mu_F,
        N=problem.num_clients,
        # Strong convexity implies the PL condition with the same constant.
        beta=beta if beta is not None else mu_F if mu_F is not None else mu,
        weight=None if problem.weights is None else float(problem.total_weight),
    )


def exact(problem: Problem) -> Problem:
    """Give the problem under the noise: what is minimised is the same."""
    return exact(problem.exact) if isinstance(problem, Noisy) else problem


def check_alike(weight: float | None, what: str) -> None:
    """Raise if clients have weights, which what is asked for has no room for."""
    if weight is not None:
        raise ValueError(
            f"{what} is known for clients of equal weight only; this problem's clients "
            f'have weights, {weight:.6g} together. Use weights="equal".'
        )


def check_quadratic(problem: Problem, what: str) -> Quadratics:
    """Raise unless the f_i are quadratics."""
    problem = exact(problem)
    if not isinstance(problem, Quadratic | LeastSquares):
        raise ValueError(
            f"{what} has a closed form for quadratics only; got "
            f"{type(problem).__name__}. Use Quadratic, LeastSquares or ridge()."
        )
    return problem

"""Cox's model of survival, stratified: every client compares its own patients only.

Cox 1972; ties after Breslow 1974. Risk sets across clients would need all patients in
one place. With a baseline hazard for each client, the strata of the textbooks, the
partial likelihood is a sum over clients, and nothing is approximated.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_positive
from focusfl.problems.newton import newton
from focusfl.problems.problem import Objective, Problem, mask_of, rows_of
from focusfl.problems.weights import Weights, mean_of, shares_of, weights_of


@dataclass(frozen=True)
class PartialLikelihood(Objective):
    """f(x) = sum over deaths of w log(sum over those at risk of exp(a·x)) - died·x
    + penalty |x|^2 / 2.

    Data may be one client's, or everybody's with clients along the first axis.
    """

    penalty: float

    def grad(self, x, data, batch):
        del batch  # all data, every time
        hazard, total, _ = self.at_risk(x, data)
        pull = hazard * _product(data["w"] / total, data["risk"])
        return _product(pull, data["A"]) - data["died"] + self.penalty * x

    def loss(self, x, data):
        """f without its penalty."""
        _, total, top = self.at_risk(x, data)
        logs = top + total.__array_namespace__().log(total)
        return (data["w"] * logs).sum(-1) - data["died"] @ x

    def evaluate(self, x, eval_data):
        grad, loss = self.grad(x, eval_data, None), self.loss(x, eval_data)
        if "share" in eval_data:
            grad, loss = eval_data["share"] @ grad, eval_data["share"] @ loss
        else:
            grad, loss = grad.mean(0), loss.mean()
        error = x - eval_data["optimum"]
        return {
            "distance": (error @ error) ** 0.5 / eval_data["unit"],
            "loss": loss + self.penalty * (x @ x) / 2,
            "grad_norm": (grad @ grad) ** 0.5,
        }

    def evaluate_clients(self, x, client_eval_data):
        return {"loss": self.loss(x, client_eval_data) + self.penalty * (x @ x) / 2}

    def at_risk(self, x, data):
        """Everybody's hazard, and its sum for every death, both over exp(top)."""
        scores = data["A"] @ x
        top = scores.max(-1)[..., None]
        hazard = scores.__array_namespace__().exp(scores - top)
        return hazard, (data["risk"] @ hazard[..., None])[..., 0], top


def _product(a, b):
    """Vector times matrix, or one of each per client."""
    return (a[..., None, :] @ b)[..., 0, :]


@PROBLEMS.register("cox")
@dataclass(frozen=True, eq=False)
class Cox(Problem):
    """F is the negative log partial likelihood, per death, plus penalty |x|^2 / 2.

    A client counts by its deaths: f_i is its own part times clients / all deaths.
    `weights` are on top of that.
    Clients may have rows to spare: `mask` says where there is one, by default
    everywhere, and time is kept as -1 where there is none. `focusfl.data.stack` pads
    and makes the mask.
    """

    A: Float[np.ndarray, "clients rows dim"]
    time: Float[np.ndarray, "clients rows"]  # to death, or to when last seen alive
    event: Bool[np.ndarray, "clients rows"]  # whether it was death
    penalty: float = 0.01  # factor of |x|^2 / 2
    mask: Bool[np.ndarray, "clients rows"] | None = None  # where there is a row
    weights: Weights = None  # of clients: "equal", or numbers

    def __post_init__(self):
        A, time = rows_of("time", self.A, self.time)
        _, event = rows_of("event", A, self.event)
        mask = mask_of(self.mask, time)
        wrong = event[mask & (event != 0) & (event != 1)]
        if wrong.size:
            raise ValueError(f"event must be true or false; got {wrong[0]:g}.")
        early = np.argwhere(mask & (time < 0))
        if early.size:
            client, row = early[0].tolist()
            raise ValueError(
                f"time must not be negative; got {time[client, row]:g} at client "
                f"{client}, row {row}. Mark rows that are padding by mask."
            )
        event, time = mask & (event == 1), np.where(mask, time, -1.0)
        if not event.any():
            raise ValueError("event must be true for somebody; got no event at all.")
        check_positive("penalty", self.penalty)
        if isinstance(self.weights, str) and self.weights == "samples":
            raise ValueError(
                'weights must be "equal" or a number for each client; got "samples", '
                "and clients of Cox count by their deaths already."
            )
        weights = weights_of(self.weights, len(A))
        checked = {"A": A, "time": time, "event": event, "mask": mask}
        checked["weights"] = weights
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def num_clients(self):
        return len(self.A)

    @property
    def objective(self):
        return PartialLikelihood(self.penalty)

    @cached_property
    def data(self):
        deaths = self.event.sum(1)
        # Deaths first; where a client has fewer than others, a death of weight 0.
        first = np.argsort(~self.event, axis=1, kind="stable")[:, : deaths.max()]
        when = np.take_along_axis(np.where(self.event, self.time, 0), first, 1)
        real = self.time >= 0
        at_risk = real[:, None, :] & (self.time[:, None, :] >= when[..., None])
        weight = self.num_clients / deaths.sum()
        return {
            "A": np.where(real[..., None], self.A, 0),
            "risk": at_risk.astype(float),
            "w": weight * (np.arange(deaths.max()) < deaths[:, None]),
            "died": weight * (self.event[..., None] * self.A).sum(1),
        }

    @property
    def client_eval_data(self):
        return self.data

    def _hessian(self, x) -> Float[np.ndarray, "dim dim"]:
        hazard, total, _ = self.objective.at_risk(x, self.data)
        A, risk, w = (self.data[name] for name in ("A", "risk", "w"))
        pull = hazard * _product(w / total, risk)
        if self.weights is not None:
            times = self.num_clients * shares_of(self.weights)[:, None]
            pull, w = times * pull, times * w
        centre = (risk * hazard[:, None, :] / total[..., None]) @ A  # one per death
        spread = np.einsum("cr,crd,cre->de", pull, A, A)
        spread -= np.einsum("cr,crd,cre->de", w, centre, centre)
        return spread / self.num_clients + self.penalty * np.eye(len(x))

    @cached_property
    def optimum(self) -> Float[np.ndarray, " dim"]:
        """x*, by Newton's method until rounding stops it."""

        def grad(x):
            return mean_of(self.weights, self.objective.grad(x, self.data, None))

        return newton(grad, self._hessian, self.x0)

    @cached_property
    def eval_data(self):
        unit = np.float64(np.linalg.norm(self.optimum) or 1.0)
        found = {**self.data, "optimum": self.optimum, "unit": unit}
        if self.weights is not None:
            found["share"] = shares_of(self.weights)
        return found

    @property
    def x0(self):
        return np.zeros(self.A.shape[2])

    @cached_property
    def _bounds(self) -> Float[np.ndarray, " clients"]:
        """A smoothness of every f_i: no variance exceeds a squared radius."""
        A, real = self.data["A"], (self.time >= 0)[..., None]
        middle = A.sum(1, keepdims=True) / real.sum(1, keepdims=True)
        radius = np.max(real[..., 0] * ((A - middle) ** 2).sum(2), axis=1)
        return self.data["w"].sum(1) * radius + self.penalty

    @property
    def L(self) -> float:
        """A smoothness that every f_i has; far from the best where d is large."""
        return float(self._bounds.max())

    @property
    def L_F(self) -> float:
        """A smoothness of F, likewise."""
        return float(mean_of(self.weights, self._bounds))

    @property
    def mu(self) -> float:
        """The strong convexity that every f_i has, from the penalty alone."""
        return self.penalty

    @cached_property
    def mu_F(self) -> float:
        """The curvature of F at x*: its strong convexity where it matters."""
        return float(np.linalg.eigvalsh(self._hessian(self.optimum))[0])

    @cached_property
    def disagreement(self):
        return np.linalg.norm(self.objective.grad(self.optimum, self.data, None), axis=1)

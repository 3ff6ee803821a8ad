"""Cox's model of survival, stratified by client: patients are compared within a client only.

Cox 1972; ties after Breslow 1974. Risk sets across clients would need all patients in one
place. With a baseline hazard for each client (a stratum), the partial likelihood is a sum
over clients, and nothing is approximated.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_positive
from focusfl.problems.convex import PenalizedRows, metrics_of
from focusfl.problems.problem import (
    Objective,
    Weights,
    mask_of,
    mean_of,
    rows_of,
    set_fields,
    shares_of,
    weights_of,
)


@dataclass(frozen=True)
class PartialLikelihood(Objective):
    """f(x) = sum over deaths of w log(sum over patients at risk of exp(a·x)) - died·x
    + penalty |x|^2 / 2, with died the weighted sum of the a of those who died.

    Data may be those of one client, or of all with clients along the first axis.
    """

    penalty: float

    def grad(self, x, data, batch):
        del batch  # all data, every time
        hazard, total, _ = self.at_risk(x, data)
        slope = hazard * _product(data["w"] / total, data["risk"])
        return _product(slope, data["A"]) - data["died"] + self.penalty * x

    def loss(self, x, data):
        """Compute f without its penalty."""
        _, total, top = self.at_risk(x, data)
        logs = top + total.__array_namespace__().log(total)
        return (data["w"] * logs).sum(-1) - data["died"] @ x

    def evaluate(self, x, eval_data):
        grad, loss = self.grad(x, eval_data, None), self.loss(x, eval_data)
        if "share" in eval_data:
            grad, loss = eval_data["share"] @ grad, eval_data["share"] @ loss
        else:
            grad, loss = grad.mean(0), loss.mean()
        loss = loss + self.penalty * (x @ x) / 2
        return metrics_of(loss, grad, x - eval_data["optimum"], eval_data["unit"])

    def evaluate_clients(self, x, client_eval_data):
        return {"loss": self.loss(x, client_eval_data) + self.penalty * (x @ x) / 2}

    def at_risk(self, x, data):
        """Compute each patient's hazard, its sum over those at risk at each death, and top.

        The first two are divided by exp(top), so that they cannot overflow.
        """
        scores = data["A"] @ x
        top = scores.max(-1)[..., None]
        hazard = scores.__array_namespace__().exp(scores - top)
        return hazard, (data["risk"] @ hazard[..., None])[..., 0], top


def _product(a, b):
    """Multiply a vector by a matrix, or one of each for every client."""
    return (a[..., None, :] @ b)[..., 0, :]


@PROBLEMS.register("cox")
@dataclass(frozen=True, eq=False)
class Cox(PenalizedRows):
    """F is the negative log partial likelihood per death, plus penalty |x|^2 / 2.

    A client counts by its deaths: f_i is its part of the likelihood times clients / all
    deaths; `weights` multiply that. Clients with fewer rows than others are padded: `mask`
    is true where there is a row, and time is stored as -1 where there is none.
    `focusfl.data.stack` pads and returns the mask.

    Raises:
        ValueError: If shapes do not fit, a time is negative, nobody dies, penalty is not
            positive, or a client has no rows.
    """

    A: Float[np.ndarray, "clients rows dim"]  # features of patients
    time: Float[np.ndarray, "clients rows"]  # until death, or until last seen alive
    event: Bool[np.ndarray, "clients rows"]  # whether the patient died
    penalty: float = 0.01  # factor of |x|^2 / 2
    mask: Bool[np.ndarray, "clients rows"] | None = None  # true for rows; None: all are
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
        set_fields(self, A=A, time=time, event=event, mask=mask, weights=weights)

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

    def mean_grad(self, x):
        return mean_of(self.weights, self.objective.grad(x, self.data, None))

    def mean_hessian(self, x):
        hazard, total, _ = self.objective.at_risk(x, self.data)
        A, risk, w = (self.data[name] for name in ("A", "risk", "w"))
        slope = hazard * _product(w / total, risk)
        if self.weights is not None:
            factor = self.num_clients * shares_of(self.weights)[:, None]
            slope, w = factor * slope, factor * w
        centre = (risk * hazard[:, None, :] / total[..., None]) @ A  # of those at risk, by death
        spread = np.einsum("cr,crd,cre->de", slope, A, A)
        spread -= np.einsum("cr,crd,cre->de", w, centre, centre)
        return spread / self.num_clients + self.penalty * np.eye(len(x))

    @cached_property
    def eval_data(self):
        parts = {**self.data, "optimum": self.optimum, "unit": self.unit}
        if self.weights is not None:
            parts["share"] = shares_of(self.weights)
        return parts

    @cached_property
    def _bounds(self) -> Float[np.ndarray, " clients"]:
        """A smoothness constant of every f_i: no variance exceeds a squared radius."""
        A, real = self.data["A"], (self.time >= 0)[..., None]
        middle = A.sum(1, keepdims=True) / real.sum(1, keepdims=True)
        radius = np.max(real[..., 0] * ((A - middle) ** 2).sum(2), axis=1)
        return self.data["w"].sum(1) * radius + self.penalty

    @property
    def L(self) -> float:
        """A smoothness constant that every f_i has; far above the smallest where d is large."""
        return float(self._bounds.max())

    @property
    def L_F(self) -> float:
        """A smoothness constant of F, likewise."""
        return float(mean_of(self.weights, self._bounds))

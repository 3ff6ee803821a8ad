"""FedProx. Li et al. MLSys 2020. https://arxiv.org/abs/1812.06127"""

from dataclasses import dataclass

from focusfl.algorithms.client_opt import ClientOpt
from focusfl.algorithms.fedavg import FedAvg
from focusfl.algorithms.wrapped import Wrapped
from focusfl.core.registry import ALGORITHMS
from focusfl.core.validation import check_not_negative


@ALGORITHMS.register("fedprox", style=15, invariant="FedAvg of fᵢ + μ‖x − x_server‖²/2")
@dataclass(frozen=True)
class FedProx(Wrapped):
    """FedAvg with local steps pulled back to the server's model; biased as FedAvg is.

    A participant takes gradient steps on f_i(x) + mu |x - x_server|^2 / 2, as many as
    in any other algorithm; the paper solves that to a tolerance.
    """

    mu: float = 0.1  # strength of the pull; 0 is FedAvg
    server_lr: float = 1.0  # factor of the server's step, positive

    def __post_init__(self):
        check_not_negative("mu", self.mu)
        super().__post_init__()

    @property
    def original(self):
        return ClientOpt(FedAvg(self.server_lr), prox=self.mu)

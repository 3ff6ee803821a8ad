"""FedAvg with an optimizer on the server: FedAvgM, FedAdam, FedYogi, FedAdagrad.

Hsu, Qi, Brown. 2019. https://arxiv.org/abs/1909.06335 (FedAvgM)
Reddi et al. ICLR 2021. https://arxiv.org/abs/2003.00295 (all)

`ServerOpt` says what each does. All have the bias of FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

from focusfl.algorithms.fedavg import FedAvg
from focusfl.algorithms.server_opt import ServerOpt
from focusfl.algorithms.wrapped import Wrapped
from focusfl.core.registry import ALGORITHMS
from focusfl.core.validation import check_share


@ALGORITHMS.register("fedavgm", style=12, invariant="FedAvg with momentum on the server")
@dataclass(frozen=True)
class FedAvgM(Wrapped):
    """FedAvg with momentum on the server; biased towards who takes part."""

    server_lr: float = 1.0  # factor of the server's step, positive
    momentum: float = 0.9  # how much of the last step is taken again, in [0, 1)

    def __post_init__(self):
        check_share("momentum", self.momentum, whole=False)
        super().__post_init__()

    @property
    def original(self):
        return ServerOpt(FedAvg(), "momentum", self.server_lr, self.momentum)


@dataclass(frozen=True)
class _Adaptive(Wrapped):
    """FedAvg with an optimizer that follows means and squares of the moves."""

    server_lr: float = 0.1  # factor of the server's step, positive
    beta1: float = 0.9  # how much of the mean of moves is kept, in [0, 1)
    beta2: float = 0.99  # how slowly squares are followed, in [0, 1)
    tau: float = 1e-3  # the smaller, the more adaptive
    bias_correction: bool = False  # as Adam has it; the paper's do not

    optimizer: ClassVar[str]

    @property
    def original(self):
        return ServerOpt(
            FedAvg(), self.optimizer, self.server_lr, self.beta1, self.beta2, self.tau,
            bias_correction=self.bias_correction,
        )  # fmt: skip


@ALGORITHMS.register("fedadam", style=11, invariant="FedAvg with Adam on the server")
@dataclass(frozen=True)
class FedAdam(_Adaptive):
    """FedAvg with Adam on the server; biased towards who takes part."""

    optimizer: ClassVar[str] = "adam"


@ALGORITHMS.register("fedyogi", style=13, invariant="FedAvg with Yogi on the server")
@dataclass(frozen=True)
class FedYogi(_Adaptive):
    """FedAvg with Yogi on the server; biased towards who takes part."""

    optimizer: ClassVar[str] = "yogi"


@ALGORITHMS.register("fedadagrad", style=14, invariant="FedAvg with Adagrad on the server")
@dataclass(frozen=True)
class FedAdagrad(Wrapped):
    """FedAvg with Adagrad on the server; biased towards who takes part."""

    server_lr: float = 0.1  # factor of the server's step, positive
    beta1: float = 0.0  # how much of the mean of moves is kept, in [0, 1)
    tau: float = 1e-3  # the smaller, the more adaptive

    @property
    def original(self):
        return ServerOpt(FedAvg(), "adagrad", self.server_lr, self.beta1, tau=self.tau)

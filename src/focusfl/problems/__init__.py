"""Problems: an objective and the data of all clients, with the optimum where it is known."""

from typing import Any

from focusfl.core.registry import PROBLEMS
from focusfl.problems.adapters import from_equinox, from_flax, rebuilt
from focusfl.problems.cox import Cox
from focusfl.problems.evaluation import PerSample
from focusfl.problems.logistic import Logistic
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import accuracy, cross_entropy
from focusfl.problems.natural import (
    chem97,
    flights,
    insteval,
    movielens,
    omniglot,
    shakespeare,
    spoken_digits,
    star,
    tv16,
    watch,
)
from focusfl.problems.networks import cifar10, cnn_on, digits, mlp_on
from focusfl.problems.neural import cnn, linear, mlp, softmax
from focusfl.problems.noise import Noisy
from focusfl.problems.nonconvex import Robust, Wavy
from focusfl.problems.problem import Objective, Problem
from focusfl.problems.quadratic import LeastSquares, Quadratic
from focusfl.problems.synthetic import random_quadratic, ridge, robust, wavy
from focusfl.problems.tabular import dialysis, heart_disease, libsvm, tcga_brca
from focusfl.problems.torch.modules import torch_params
from focusfl.problems.torch.problem import NotTranslated, TorchProblem, from_torch

PROBLEMS.discover(__name__, __path__)


def __getattr__(name: str) -> Any:
    return PROBLEMS.attribute(__name__, name)


__all__ = [
    "PROBLEMS", "Cox", "LossProblem", "LeastSquares", "Logistic", "NotTranslated", "Noisy",
    "Objective", "PerSample", "Problem", "Quadratic", "Robust", "TorchProblem", "Wavy",
    "accuracy", "chem97", "cifar10", "cnn", "cnn_on", "cross_entropy", "dialysis", "digits",
    "flights", "from_equinox", "from_flax", "from_loss", "from_torch", "heart_disease",
    "insteval", "libsvm", "linear", "mlp", "mlp_on", "movielens", "omniglot", "random_quadratic",
    "rebuilt", "ridge", "robust", "shakespeare", "softmax", "spoken_digits", "star", "tcga_brca",
    "torch_params", "tv16", "watch", "wavy",
]  # fmt: skip

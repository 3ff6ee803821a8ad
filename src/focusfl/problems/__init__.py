"""What is minimised, with the optimum where it is known."""

from collections.abc import Callable

from focusfl.problems.adapters import from_equinox, from_flax, rebuilt
from focusfl.problems.cox import Cox
from focusfl.problems.logistic import Logistic
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import accuracy, cross_entropy, mlp, softmax
from focusfl.problems.natural import (
    chem97,
    cnn_on,
    flights,
    insteval,
    linear_on,
    movielens,
    omniglot,
    spoken_digits,
    star,
    tv16,
    watch,
)
from focusfl.problems.networks import cnn, digits, mlp_on
from focusfl.problems.noise import Noisy
from focusfl.problems.problem import Objective, Problem
from focusfl.problems.quadratic import LeastSquares, Quadratic
from focusfl.problems.robust import Robust, robust
from focusfl.problems.sets import PerSample
from focusfl.problems.synthetic import random_quadratic, ridge
from focusfl.problems.tabular import dialysis, heart_disease, libsvm, tcga_brca
from focusfl.problems.text import shakespeare
from focusfl.problems.torch.problem import NotTranslated, TorchProblem, from_torch
from focusfl.problems.vision import cifar10
from focusfl.problems.wavy import Wavy, wavy

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "ridge": ridge,
    "least_squares": LeastSquares,
    "quadratic": Quadratic,
    "logistic": Logistic,
    "libsvm": libsvm,
    "heart_disease": heart_disease,
    "cox": Cox,
    "tcga_brca": tcga_brca,
    "dialysis": dialysis,
    "random_quadratic": random_quadratic,
    "wavy": wavy,
    "robust": robust,
    "digits": digits,
    "mlp": mlp_on,
    "cnn": cnn,
    "cifar10": cifar10,
    "spoken_digits": spoken_digits,
    "omniglot": omniglot,
    "shakespeare": shakespeare,
    "movielens": movielens,
    "insteval": insteval,
    "chem97": chem97,
    "star": star,
    "tv16": tv16,
    "flights": flights,
    "watch": watch,
}

__all__ = [
    "PROBLEMS",
    "Cox",
    "LossProblem",
    "LeastSquares",
    "Logistic",
    "NotTranslated",
    "Noisy",
    "Objective",
    "PerSample",
    "Problem",
    "Quadratic",
    "Robust",
    "TorchProblem",
    "Wavy",
    "accuracy",
    "chem97",
    "cifar10",
    "cnn",
    "cnn_on",
    "cross_entropy",
    "dialysis",
    "digits",
    "flights",
    "from_equinox",
    "from_flax",
    "from_loss",
    "from_torch",
    "heart_disease",
    "insteval",
    "libsvm",
    "linear_on",
    "mlp",
    "mlp_on",
    "movielens",
    "omniglot",
    "random_quadratic",
    "rebuilt",
    "ridge",
    "robust",
    "shakespeare",
    "softmax",
    "spoken_digits",
    "star",
    "tcga_brca",
    "tv16",
    "watch",
    "wavy",
]

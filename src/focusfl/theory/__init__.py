"""What theory predicts: constants, step sizes, rates, fixed points, noise floors."""

from focusfl.theory.auto import Choice, auto_lr, closed_form
from focusfl.theory.constants import Constants, constants
from focusfl.theory.limits import (
    fedau_limit,
    fedau_weights,
    fedavg_fixed_point,
    fedavg_limit,
    first_order_bias,
    noise_floor,
    weighted_optimum,
)
from focusfl.theory.lyapunov import Lyapunov, lyapunov
from focusfl.theory.prediction import Prediction, predict
from focusfl.theory.steps import Rate, StepSize, rates, step_sizes
from focusfl.theory.summary import Report, report

__all__ = [
    "Choice",
    "Constants",
    "Lyapunov",
    "Prediction",
    "Rate",
    "Report",
    "StepSize",
    "auto_lr",
    "closed_form",
    "constants",
    "fedau_limit",
    "fedau_weights",
    "fedavg_fixed_point",
    "fedavg_limit",
    "first_order_bias",
    "lyapunov",
    "noise_floor",
    "predict",
    "rates",
    "report",
    "step_sizes",
    "weighted_optimum",
]

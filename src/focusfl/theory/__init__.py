"""What theory predicts: constants, step sizes, rates, fixed points, noise floors."""

from focusfl.theory.auto import Choice as Choice
from focusfl.theory.auto import auto_lr as auto_lr
from focusfl.theory.auto import closed_form as closed_form
from focusfl.theory.constants import Constants as Constants
from focusfl.theory.constants import constants as constants
from focusfl.theory.limits import fedau_limit as fedau_limit
from focusfl.theory.limits import fedau_weights as fedau_weights
from focusfl.theory.limits import fedavg_fixed_point as fedavg_fixed_point
from focusfl.theory.limits import fedavg_limit as fedavg_limit
from focusfl.theory.limits import first_order_bias as first_order_bias
from focusfl.theory.limits import noise_floor as noise_floor
from focusfl.theory.limits import weighted_optimum as weighted_optimum
from focusfl.theory.lyapunov import Lyapunov as Lyapunov
from focusfl.theory.lyapunov import lyapunov as lyapunov
from focusfl.theory.prediction import Prediction as Prediction
from focusfl.theory.prediction import predict as predict
from focusfl.theory.steps import Rate as Rate
from focusfl.theory.steps import StepSize as StepSize
from focusfl.theory.steps import rates as rates
from focusfl.theory.steps import step_sizes as step_sizes
from focusfl.theory.summary import Report as Report
from focusfl.theory.summary import report as report

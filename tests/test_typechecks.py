"""While tests run, a call with arguments of another type or shape is refused."""

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError

from focusfl.mixing import check_row_stochastic, left_perron

CUBE = np.eye(2)[None]  # three axes, not two


def test_another_type_is_refused():
    with pytest.raises(BeartypeCallHintViolation):
        check_row_stochastic([[1.0]])
    with pytest.raises(BeartypeCallHintViolation):
        check_row_stochastic(np.eye(2), name=5)


def test_another_shape_is_refused():
    with pytest.raises(TypeCheckError):
        left_perron(CUBE)


def test_a_user_meets_our_own_messages(as_a_user):
    check_row_stochastic(np.eye(2), name=5)
    with pytest.raises(ValueError):
        left_perron(CUBE)

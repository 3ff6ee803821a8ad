"""While tests run, a call with arguments of another type or shape is refused."""

import numpy as np
import pytest
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError
from typechecks import checked, unchecked

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


@checked(typechecker=beartype)
def plainly(a: int, b: str = "x", *, c: float = 2.0) -> str:
    return f"{a}{b}{c}"


def within(z):
    @checked(typechecker=beartype)
    def inner(a: int, *, c: int = 4) -> int:
        return a + c + z

    return inner


@checked(typechecker=beartype)
def lies(a: int) -> str:
    return a


def test_calls_are_those_of_the_function():
    for _ in range(2):  # checks are written with the first
        assert plainly(1) == "1x2.0" and plainly(1, "y", c=0.5) == "1y0.5"
        assert plainly(a=1, b="z") == "1z2.0"
        assert within(1)(2) == 7 and within(1)(2, c=1) == 4
        with unchecked():
            assert plainly(1) == "1x2.0" and plainly("1", 2, c="d") == "12d"
            assert within(1)(2) == 7 and within(1)(2.5, c=1) == 4.5


@pytest.mark.parametrize(
    "call",
    [
        lambda: plainly("1"), lambda: plainly(1, 2), lambda: plainly(1, c="2"),
        lambda: within(1)(2.5), lambda: lies(1),
    ],
)  # fmt: skip
def test_checks_are_there_again_when_they_were_off(call):
    for _ in range(2):
        with pytest.raises(BeartypeCallHintViolation):
            call()
        with unchecked():
            with unchecked():
                call()
            call()


def test_what_is_first_called_unchecked_is_checked_from_then_on():
    inner = within(0)
    with unchecked():
        assert inner(1.5) == 5.5
    with pytest.raises(BeartypeCallHintViolation):
        inner(1.5)

"""While tests run, a call with arguments of another type or shape is refused."""

from dataclasses import dataclass

import numpy as np
import pytest
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from typechecks import checked, unchecked

from focusfl.mixing import check_row_stochastic, left_perron

CUBE = np.eye(2)[None]  # three axes, not two


def test_another_type_is_refused():
    with pytest.raises(BeartypeCallHintViolation):
        check_row_stochastic([[1.0]])
    with pytest.raises(BeartypeCallHintViolation):
        check_row_stochastic(np.eye(2), name=5)


def test_another_shape_is_refused():
    with pytest.raises(BeartypeCallHintViolation, match="3 dimensions, not the 2"):
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


@checked(typechecker=beartype)
def together(
    a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"], size: int
) -> Float[np.ndarray, " n"]:
    if size:
        together(np.ones(size), np.ones(size), 0)  # whose n is another
    return (a + b)[: len(a) - size]


def test_a_size_that_has_a_name_is_the_same_throughout_a_call():
    assert together(np.ones(2), np.ones(2), 0).shape == (2,)
    for wrong in [(np.ones(2), np.ones(1), 0), (np.ones(2), np.ones(2), 1)]:
        with pytest.raises(BeartypeCallHintViolation):
            together(*wrong)
        with unchecked():
            together(*wrong)


@checked(typechecker=beartype)
@dataclass(frozen=True)
class Point:
    x: float
    at: Float[np.ndarray, " n"] | None = None


@checked(typechecker=beartype)
@dataclass(frozen=True)
class Named(Point):
    name: str = ""


def test_what_a_dataclass_is_made_of_is_checked():
    assert Named(1.0, np.ones(2), "a").name == "a" and Point(x=1.0).at is None
    for wrong in [(1.0, CUBE), ("1",)]:
        for kind in (Point, Named):
            with pytest.raises(BeartypeCallHintViolation):
                kind(*wrong)
            with unchecked():
                kind(*wrong)
    with pytest.raises(BeartypeCallHintViolation):
        Named(1.0, None, 5)


def test_functions_of_one_text_are_each_checked_by_what_they_state():
    def make(kind, default):
        @checked(typechecker=beartype)
        def same(a: kind, *, c=default) -> kind:
            return a * c

        @checked(typechecker=beartype)
        def anything(a: object, *, c=default) -> object:
            return a * c

        return same, anything

    for kind, good, bad, default in [
        (int, 1, "a", 2),
        (str, "a", 1, 3),
        (int, 2, "", 4),
    ]:
        for one in make(kind, default):
            assert one(good) == good * default and one(good, c=1) == good
        with pytest.raises(BeartypeCallHintViolation):
            make(kind, default)[0](bad)

"""A job that goes on is the job that was begun, or says so."""

import logging

import numpy as np
import pytest

import focusfl as ff
from focusfl.engines.protocol import ProtocolServer

BEGUN = {"lr": 0.1, "local_steps": 2, "on_empty": "skip", "x0": np.zeros(3)}
HALVED = [0.1] * 300 + [0.05] * 300


def opened(folder, **options):
    options = {**BEGUN, **options}
    return ProtocolServer(
        ff.Focus(), options.pop("x0"), ["a"], folder, job="job", **options
    )


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"lr": 0.2}, "lr was 0.1 and is now 0.2"),
        ({"local_steps": 3}, "local_steps was 2 and is now 3"),
        ({"on_empty": "step"}, "on_empty was 'skip' and is now 'step'"),
        ({"x0": np.ones(3)}, "x0 was 'a model of norm 0 .*norm 1.73205"),
        ({"lr": HALVED.__getitem__}, "lr was 0.1 and .*a function of 0.05 to 0.1"),
    ],
    ids=lambda a: str(a)[:20],
)
def test_going_on_with_another_setting_is_refused_unless_asked_for(
    other, words, folder, as_a_user, caplog
):
    opened(folder).close()
    opened(folder).close()  # the same may go on
    with opened(folder) as protocol:
        disk = protocol._path.read_bytes()
    with pytest.raises(ValueError, match=f"cannot resume from .*{words}.*accept"):
        opened(folder, **other)
    assert protocol._path.read_bytes() == disk
    with caplog.at_level(logging.WARNING):
        opened(folder, **other, changed="accept").close()
    assert "goes on" in caplog.text
    opened(folder, **other).close()  # from now on it is this one
    with pytest.raises(ValueError, match="cannot resume"):
        opened(folder)


def test_a_function_of_the_round_is_the_same_if_its_steps_are(folder, as_a_user):
    opened(folder, lr=HALVED.__getitem__).close()
    opened(folder, lr=lambda r: HALVED[r]).close()
    for other in ([*HALVED[:-100], *[0.01] * 100], HALVED[1:], [*HALVED, *HALVED]):
        with pytest.raises(ValueError, match="lr was 'a function"):
            opened(folder, lr=other.__getitem__)


def test_a_wrong_word_for_changes_is_refused(folder, as_a_user):
    opened(folder).close()
    with pytest.raises(ValueError, match="changed must be"):
        opened(folder, changed="yes")

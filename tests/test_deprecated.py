"""Names of the last release: they work, and say what they are called now."""

import numpy as np
import pytest

import focusfl as ff

SAMPLES = {"x": np.ones((4, 2)), "y": np.array([0, 1, 0, 1])}


@pytest.mark.parametrize(
    "module, old, new",
    [
        (ff.problems, "Learned", ff.problems.LossProblem),
    ],
)
def test_a_class_is_found_by_its_old_name(module, old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is now called {new.__name__}"):
        assert getattr(module, old) is new
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = module.Nothing


def test_held_is_taken_for_eval_data():
    with pytest.warns(DeprecationWarning, match="held= is now called eval_data="):
        problem = ff.problems.softmax([SAMPLES], classes=2, held=SAMPLES, batch_size=2)
    with pytest.warns(DeprecationWarning, match="held is now called eval_data"):
        assert problem.held is problem.eval_data

"""A study with a clock: simulated seconds in its curves, and what it may not say."""

import numpy as np
import pytest

import focusfl as ff
from focusfl.participation import Async, Sync
from focusfl.studies import spec
from focusfl.studies.runner import run

STUDY = {
    "rounds": 30,
    "lr": 1e-4,
    "eval_every": 10,
    "latency": {"compute": {"median": 1.0, "sigma": 1.0}, "up": 0.001},
    "problem": {"kind": "ridge", "num_clients": 4, "dim": 2, "rows": 3},
    "participation": {
        "some": {"kind": "uniform", "m": 2},
        "first": {"kind": "sync", "select": 3, "take": 2},
        "async": {"replies": 2},
    },
    "algorithms": {"focus": {}},
}


def test_seconds_of_a_study_with_a_clock_are_simulated():
    study = spec.parse(STUDY, "study")
    laws = [scenario.participation for scenario in study.participation.values()]
    assert [type(law) for law in laws] == [Sync, Sync, Async]
    assert isinstance(laws[0].among, ff.participation.Uniform)
    for one, law in zip(run(study), laws, strict=True):
        alone = ff.simulate(ff.Focus(), study.problem, law, rounds=30, lr=1e-4)
        expected = np.cumsum(alone.metrics["seconds"])[[0, 10, 20, 30]]
        assert np.allclose(one.curves["seconds"], expected, rtol=1e-12)
        assert one.row["tracking_gap"] < 1e-14
        assert one.row["simulated_seconds"] == one.curves["seconds"][-1] > 1


@pytest.mark.parametrize(
    "more, words",
    [
        ({"latency": {"compute": -1}}, "compute must be finite and at least 0; got -1.0"),
        ({"latency": {"speed": 1}}, "latency: unknown part: 'speed'"),
        ({"latency": {"compute": [1, 2]}}, "compute must have one entry per client"),
        ({"latency": {"trace": [[1, 1]]}}, "trace must have at least one device per"),
        ({"latency": None}, r"\[participation.first\] needs latency"),
        (
            {"latency": None, "participation": {
                "full": {}, "sync": {"latency": {"compute": 1.0}}}},
            r"\[participation.full\] has no latency and others have",
        ),
    ],
)  # fmt: skip
def test_clocks_that_make_no_sense_are_refused_in_one_line(more, words):
    said = {name: value for name, value in (STUDY | more).items() if value is not None}
    with pytest.raises(ValueError, match=words) as refused:
        spec.parse(said, "study")
    assert "\n" not in str(refused.value)

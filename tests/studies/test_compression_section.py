"""A study whose messages go by a compressor, or are to be summed in secret."""

import numpy as np
import pytest

import focusfl as ff
from focusfl.deploy import study as deploy
from focusfl.studies import spec
from focusfl.studies.report.names import conditions
from focusfl.studies.runner import Store, run, run_groups
from focusfl.studies.store import Folder

STUDY = {
    "rounds": 4,
    "lr": 0.05,
    "problem": {"kind": "random_quadratic", "num_clients": 4, "dim": 5},
    "participation": {"some": {"kind": "uniform", "m": 2}},
    "algorithms": {
        "focus": {},
        "fedavg": {},
        "own": {"kind": "compressed", "compressor": {"kind": "top_k", "k": 2}},
    },
}
CODEC = {"kind": "quantize", "bits": 4}
TOML = """
rounds = 4
lr = 0.05
[problem]
kind = "random_quadratic"
num_clients = 4
dim = 5
[participation.full]
[algorithms.focus]
[algorithms.fedavg]
"""


def algorithms(**more):
    study = spec.parse(STUDY | more, "study")
    return {name: spec.algorithm for name, spec in study.algorithms.items()}


def test_a_codec_is_everybodys_who_has_none_or_of_those_it_names():
    own = ff.Compressed(compressor=ff.TopK(2))
    four = ff.Quantize(4)
    assert algorithms(compression=CODEC) == {
        "focus": ff.Compressed(ff.Focus(), four),
        "fedavg": ff.Compressed(ff.FedAvg(), four),
        "own": own,
    }
    named = algorithms(compression=CODEC | {"algorithms": ["fedavg"]})
    assert named == {
        "focus": ff.Focus(),
        "fedavg": ff.Compressed(ff.FedAvg(), four),
        "own": own,
    }


def test_a_coded_study_runs_what_simulate_does_under_other_keys(tmp_path):
    said = STUDY | {"algorithms": {"focus": {}}}
    plain, coded = (spec.parse(said | more, "study") for more in ({}, {"compression": CODEC}))
    (found,) = run(coded)
    law = ff.participation.Uniform(2)
    algorithm = ff.Compressed(ff.Focus(), ff.Quantize(4))
    alone = ff.simulate(algorithm, coded.problem, law, rounds=4, lr=0.05)
    assert np.array_equal(found.curves["distance"], alone.metrics["distance"])
    assert found.row["tracking_gap"] < 1e-14
    keys = {Store(tmp_path, each).key(run_groups(each)[0], 0.05, 0) for each in (plain, coded)}
    assert len(keys) == 2
    assert conditions(coded.source) == ["quantize bits 4"]
    assert conditions(plain.source) == []


def test_a_study_of_coded_and_plain_algorithms_is_kept_and_read(tmp_path):
    own = {"algorithms": {"focus": {}, "own": STUDY["algorithms"]["own"]}}
    runs = list(run(spec.parse(STUDY | own, "study")))
    folder = Folder(tmp_path)
    folder.write_runs("runs", runs)
    plain, coded = folder.read_runs("runs")
    for before, after in zip(runs, (plain, coded), strict=True):
        for axis in ("vectors_sent", "bytes_up"):
            assert np.array_equal(before.curves[axis], after.curves[axis])
            assert after.row[axis] == after.curves[axis][-1]
    # Of five numbers two and their places, of 64 and 3 bits, or a bit for every place.
    share = (2 * 64 + min(2 * 3, 5)) / (5 * 64)
    assert coded.row["bytes_up"] / plain.row["bytes_up"] == pytest.approx(share)


@pytest.mark.parametrize(
    "compressor, words",
    [
        ({"kind": "intgers"}, "unknown kind: 'intgers'"),
        ({"bits": 4}, r"\[compression\] must name its kind: one of"),
        ({"kind": "quantize", "bits": 9}, "bits must be a whole number from 2 to 8"),
        ({"kind": "quantize", "k": 2}, r"unknown key in \[compression\]: 'k'"),
        ({"kind": "top_k", "k": 9}, r"for \[algorithms.focus\]: k must not be above"),
        ({"kind": "low_rank"}, "fits no array of this model"),
        (
            {"kind": "chain", "first": {"kind": "nix"}},
            r"\[compression.first\]: unknown kind",
        ),
        (CODEC | {"algorithms": ["focsu"]}, "Did you mean 'focus'"),
        (CODEC | {"algorithms": ["own"]}, "own, which has a compressor of its own"),
        (CODEC | {"algorithms": []}, "must name one at least"),
    ],
)
def test_a_codec_that_makes_no_sense_is_refused_in_one_line(compressor, words):
    with pytest.raises(ValueError, match=words) as refused:
        spec.parse(STUDY | {"compression": compressor}, "study")
    assert "\n" not in str(refused.value)


def test_a_codec_of_nobody_and_a_step_that_nobody_can_choose_are_refused():
    own = {"algorithms": {"own": STUDY["algorithms"]["own"]}}
    with pytest.raises(ValueError, match="codes nothing"):
        spec.parse(STUDY | own | {"compression": CODEC}, "study")
    with pytest.raises(ValueError, match="knows of no compressor; .algorithms.focus."):
        spec.parse(STUDY | {"compression": CODEC, "lr": "auto"}, "study")


def test_who_is_left_out_of_a_study_is_left_out_of_its_codec(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(TOML + '[compression]\nkind = "quantize"\nalgorithms = ["fedavg"]\n')
    assert spec.load(file, only=["focus"]).algorithms["focus"].algorithm == ff.Focus()
    coded = ff.Compressed(ff.FedAvg(), ff.Quantize())
    assert spec.load(file, only=["fedavg"]).algorithms["fedavg"].algorithm == coded
    assert deploy.load(file, [], "fedavg", None).algorithm == coded
    assert deploy.load(file, [], None, None).algorithm == ff.Focus()


def test_secure_sums_are_of_deployments_and_reach_both_apps(tmp_path):
    from focusfl.flower.secure import Secure

    file = tmp_path / "study.toml"
    file.write_text(TOML + "[secure]\nminimum = 2\n")
    with pytest.raises(ValueError, match=r"line 11: \[secure\] is for .* simulation"):
        spec.load(file)
    loaded = deploy.load(file, [], None, None, secure=4)
    deploy.write(loaded, tmp_path / "study.json")
    for each in (loaded, deploy.read(tmp_path / "study.json")):
        assert each.secure == each.job("").secure == Secure(4)
        assert each.algorithm == ff.Compressed(ff.Focus(), ff.FixedPoint(50, 44))
    coded = deploy.load(file, ["compression={kind='fixed_point', bits=30}"], None, None)
    assert coded.algorithm == ff.Compressed(ff.Focus(), ff.FixedPoint(30))

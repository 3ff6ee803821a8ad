"""Equal things have one name in every process; anything else has another."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import focusfl as ff
from focusfl.core.fingerprint import fingerprint, package


def scaled(factor):
    return lambda x, samples: factor * x


@dataclass(frozen=True)
class Holder:
    what: object

    @property
    def twice(self):
        return 2


DIFFERENT = [
    ff.Focus(),
    ff.Focus(warm_start=True),
    ff.FedAvg(),
    ff.FedAvg(server_lr=0.5),
    ff.participation.Bernoulli(0.5),
    ff.participation.Bernoulli([0.5, 0.25]),
    Holder(1),
    Holder("1"),
    Holder(scaled(2)),
    Holder(scaled(3)),
    Holder(partial(max, 1)),
    Holder(partial(max, 2)),
    np.zeros(3),
    np.zeros(3, "float32"),
    np.zeros((3, 1)),
    {"a": 1, "b": 2},
    {"a": 1, "b": [2]},
    [[1], [2, 3]],
    [[1, 2], [3]],
    b"ab",
    "ab",
    None,
]


def test_different_things_have_different_names():
    names = [fingerprint(thing) for thing in DIFFERENT]
    assert len(set(names)) == len(names)
    assert names == [fingerprint(thing) for thing in DIFFERENT]


def test_the_next_process_gives_the_same_names():
    code = (
        "import focusfl as ff; from focusfl.core.fingerprint import fingerprint, package;"
        "print(fingerprint(ff.Focus(), ff.participation.Bernoulli(0.5)), package())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(told) == 1


@pytest.mark.parametrize("name", ["update", "max_exact_lr", "cost"])
def test_a_replaced_method_or_property_changes_the_name(monkeypatch, name):
    before = fingerprint(ff.Scaffold())
    new = property(lambda self: (9, 9)) if name == "cost" else lambda self, *a: a
    monkeypatch.setattr(ff.Scaffold, name, new)
    assert fingerprint(ff.Scaffold()) != before


def test_the_packages_own_code_has_a_name():
    assert package() == package() and len(package()) == 16


def test_a_change_of_the_code_that_verdicts_follow_from_changes_it(tmp_path):
    """Or a study would keep verdicts of the code that it was run with."""
    source = tmp_path / "focusfl"
    shutil.copytree(Path(ff.__file__).parent, source)
    code = "from focusfl.core.fingerprint import package; print(package())"

    def name():
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        return done.stdout

    before = name()
    with open(source / "studies" / "verdict.py", "a") as file:
        file.write("\n# changed\n")
    assert name() != before

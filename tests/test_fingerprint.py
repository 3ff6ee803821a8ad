"""Equal things have one name in every process; anything else has another."""

import importlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import focusfl as ff
from focusfl.core.fingerprint import fingerprint, source


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
        "import focusfl as ff; from focusfl.core.fingerprint import fingerprint, source;"
        "print(fingerprint(ff.Focus(), ff.participation.Bernoulli(0.5)), source())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(told) == 1


def test_a_line_of_the_source_that_a_class_is_written_in_changes_its_name(tmp_path, monkeypatch):
    file = tmp_path / "mine_for_names.py"
    monkeypatch.syspath_prepend(tmp_path)
    names = []
    for factor in (2, 3, 2):
        file.write_text(f"FACTOR = {factor}\nclass Mine:\n    pass\n")
        sys.modules.pop("mine_for_names", None)
        importlib.invalidate_caches()
        names.append(fingerprint(importlib.import_module("mine_for_names").Mine))
    assert names[0] == names[2] != names[1]


def test_the_packages_own_code_has_a_name():
    assert source() == source() and len(source()) == 16


def test_a_change_of_the_code_that_verdicts_follow_from_changes_it(tmp_path):
    """Or a study would keep verdicts of the code that it was run with."""
    copy = tmp_path / "focusfl"
    shutil.copytree(Path(ff.__file__).parent, copy)
    code = "from focusfl.core.fingerprint import source; print(source())"

    def name():
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        return done.stdout

    before = name()
    with open(copy / "studies" / "verdict.py", "a") as file:
        file.write("\n# changed\n")
    assert name() != before

"""The algorithm that docs/add-an-algorithm.md adds keeps every law, and is AREA."""

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import gap, quadratic, some_masks

import focusfl as ff
from focusfl import participation as who

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "add-an-algorithm.md"

STUDY = """
rounds = 20
lr = 1e-3
[problem]
kind = "ridge"
num_clients = 4
dim = 5
rows = 8
[participation.full]
[algorithms.area]
[algorithms.focus]
"""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the library, and in it the page's one file: nothing else is changed."""
    assert "area" not in ff.ALGORITHMS  # or the page should teach another one
    place = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, place / name, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", place)
    (file,) = blocks("python")
    (place / "src/focusfl/algorithms/area.py").write_text(file)
    return place


@pytest.fixture(scope="module")
def area(tree):
    """The class, from the page's own file."""
    path = tree / "src/focusfl/algorithms/area.py"
    spec = importlib.util.spec_from_file_location("area", path)
    module = importlib.util.module_from_spec(spec)
    registered = dict(ff.ALGORITHMS.registered)
    spec.loader.exec_module(module)
    ff.ALGORITHMS.registered = registered  # this process's own library has no AREA
    return module.AREA


def run(tree, *arguments, code=0):
    """Run Python with the library that has AREA; give what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
    )  # fmt: skip
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_it_keeps_every_law_of_the_contract(tree):
    found = run(
        tree, "-m", "pytest", "-n", "0", "-o", "addopts=", "-p", "no:cacheprovider",
        "--import-mode=importlib", "-k", "AREA", "tests/test_contract.py",
        "tests/test_declarations.py",
    )  # fmt: skip
    (passed,) = re.findall(r"(\d+) passed", found)
    assert int(passed) >= 10


def test_all_else_follows_from_the_file(tree):
    listed = json.loads(run(tree, "-m", "focusfl.cli", "list", "--json"))
    assert listed["algorithms"]["area"]["options"] == {"server_lr": 1.0}
    run(
        tree, "-c",
        "import focusfl as ff; from focusfl.conformance import check_contract;"
        "check_contract(ff.AREA(server_lr=0.5)); assert 'AREA' in ff.__all__;"
        "from focusfl.studies.report.names import label, looks;"
        "assert label('area') == 'AREA' and ff.ALGORITHMS.invariant('area') == 'x = mean zᵢ';"
        "assert len({look['color'] for look in looks(['focus', 'fedavg', 'area']).values()}) == 3",
    )  # fmt: skip
    (tree / "study.toml").write_text(STUDY)
    run(tree, "-m", "focusfl.cli", "run", "study.toml", "--quiet")
    run(tree, "-m", "focusfl.cli", "plot", "runs/study", "-o", "figure.svg")
    assert (tree / "figure.svg").stat().st_size > 1000
    # With several local steps AREA is biased, which the conformance check finds out.
    found = run(
        tree, "-m", "focusfl.cli", "check", "focusfl.algorithms:AREA", "--rows", "full", "--json",
        code=1,
    )  # fmt: skip
    assert json.loads(found)["rows"][0]["verdict"].startswith("biased")


@pytest.mark.parametrize("on_empty", ["skip", "step"])
def test_the_engines_agree(area, on_empty):
    options = ff.Options(record_models=True, on_empty=on_empty)
    setting = {"rounds": 40, "lr": 0.05, "local_steps": 4, "options": options}
    model = who.Replay(some_masks())
    fast, slow = (
        engine(area(), quadratic(), model, **setting) for engine in (ff.simulate, ff.loop)
    )
    assert gap(fast.trajectory, slow.trajectory) < 1e-12
    assert gap(fast.server, slow.server) < 1e-12
    assert gap(fast.clients, slow.clients) < 1e-12


def test_it_is_its_rule_written_anew(area):
    """x is the mean of everybody's last model; a table on the server holds them."""
    problem, masks, lr, steps = quadratic(), some_masks(rounds=30), 0.05, 3
    x = np.linspace(-1, 1, 5)
    table, expected = np.tile(x, (6, 1)), [x]
    for mask in masks:
        for i in np.flatnonzero(mask):
            z = x
            for _ in range(steps):
                z = z - lr * (problem.H[i] @ z - problem.h[i])
            table[i] = z
        x = table.mean(0)
        expected.append(x)
    result = ff.simulate(
        area(), problem, who.Replay(masks), rounds=30, lr=lr, local_steps=steps,
        x0=expected[0], options=ff.Options(record_models=True),
    )  # fmt: skip
    assert gap(result.trajectory, np.array(expected)) < 1e-13
    assert gap(result.clients.z, table) < 1e-13


@pytest.mark.parametrize(
    "model",
    [who.Full(), who.Uniform(2), who.Bernoulli([0.2, 0.9, 0.4, 0.7, 0.3, 0.6]),
     who.Cyclic(2)],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_it_ends_at_the_fixed_point_of_fedavg_whoever_takes_part(area, model):
    """Which is the optimum with one local step, and is not with several."""
    problem = quadratic()
    for steps in (1, 3):
        end = ff.simulate(area(), problem, model, rounds=3000, lr=0.1, local_steps=steps)
        limit = ff.theory.fedavg_fixed_point(problem, 0.1, steps)
        assert gap(end.x, limit) < 1e-11
        exact = area().max_exact_lr(problem.L, steps) == math.inf
        assert exact == (gap(limit, problem.optimum) < 1e-11) == (steps == 1)


def test_the_page_prints_what_it_says(tree):
    (code,) = blocks("py")
    out = run(tree, "-c", code)
    printed = [line.rsplit(maxsplit=1) for line in out.splitlines()]
    said = re.findall(r"^# (\w+ +\d) (\de-\d\d)$", code, re.M)
    assert len(said) == 6
    for name, size in said:
        (got,) = [float(line[1]) for line in printed if line[0] == name]
        assert got < 1e-12 if float(size) < 1e-12 else 0.5 < got / float(size) < 2
    apart, from_limit = (float(re.findall(r"\de-\d\d", " ".join(line))[0])
                         for line in printed[-2:])  # fmt: skip
    assert apart < 1e-12 and from_limit < 1e-12

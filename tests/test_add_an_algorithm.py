"""The algorithm that docs/add-an-algorithm.md adds keeps every law, and is AREA."""

import importlib.util
import inspect
import itertools
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import test_contract
from helpers import gap, quadratic, some_masks

import focusfl as ff
from focusfl import participation as who

PAGE = Path(__file__).parent.parent / "docs" / "add-an-algorithm.md"
NAME = "focusfl.algorithms.area"
LAWS = {
    name: law
    for name, law in vars(test_contract).items()
    if name.startswith("test_") and not name.startswith("test_the_check_of")
}
EXTRA = {"dtype": ["float32", "float64"]}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture
def area(tmp_path, monkeypatch):
    """The class, from the page's own file, where the page says to put it."""
    assert "area" not in ff.ALGORITHMS  # or the page should teach another one
    (file,) = blocks("python")
    path = tmp_path / "area.py"
    path.write_text(file)
    spec = importlib.util.spec_from_file_location(NAME, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, NAME, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(ff, "AREA", module.AREA, raising=False)
    return module.AREA


def cases():
    for name, law in LAWS.items():
        others = [one for one in inspect.signature(law).parameters if one != "alg"]
        for choice in itertools.product(*(EXTRA[one] for one in others)):
            labels = [name, *(getattr(a, "__name__", a) for a in choice)]
            options = dict(zip(others, choice, strict=True))
            yield pytest.param(law, options, id="-".join(labels))


@pytest.mark.parametrize(("law", "options"), list(cases()))
@pytest.mark.parametrize("server_lr", [1.0, 0.5])
def test_it_keeps_every_law_of_the_contract(area, law, options, server_lr):
    law(alg=area(server_lr), **options)


def test_the_laws_were_found():
    assert len(LAWS) >= 10 and all(
        "alg" in inspect.signature(f).parameters for f in LAWS.values()
    )


@pytest.mark.parametrize("on_empty", ["skip", "step"])
def test_the_engines_agree(area, on_empty):
    options = {"rounds": 40, "lr": 0.05, "local_steps": 4, "on_empty": on_empty}
    law = who.Replay(some_masks())
    fast, slow = (
        run(area(), quadratic(), law, record="model", **options)
        for run in (ff.simulate, ff.loop)
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
        x0=expected[0], record="model",
    )  # fmt: skip
    assert gap(result.trajectory, np.array(expected)) < 1e-13
    assert gap(result.clients.z, table) < 1e-13


@pytest.mark.parametrize(
    "law",
    [who.Full(), who.Uniform(2), who.Bernoulli([0.2, 0.9, 0.4, 0.7, 0.3, 0.6]),
     who.Cyclic(2)],
    ids=lambda law: type(law).__name__,
)  # fmt: skip
def test_it_ends_at_the_fixed_point_of_fedavg_whoever_takes_part(area, law):
    """Which is the optimum with one local step, and is not with several."""
    problem = quadratic()
    for steps in (1, 3):
        run = ff.simulate(area(), problem, law, rounds=3000, lr=0.1, local_steps=steps)
        limit = ff.theory.fedavg_fixed_point(problem, 0.1, steps)
        assert gap(run.x, limit) < 1e-11
        exact = area().exact_below(problem.L, steps) == math.inf
        assert exact == (gap(limit, problem.optimum) < 1e-11) == (steps == 1)


def test_the_page_prints_what_it_says(area, capsys):
    (code,) = blocks("py")
    exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})
    printed = [line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    said = re.findall(r"^# (\w+ +\d) (\de-\d\d)$", code, re.M)
    assert len(said) == 6
    for name, size in said:
        (got,) = [float(line[1]) for line in printed if line[0] == name]
        assert got < 1e-12 if float(size) < 1e-12 else 0.5 < got / float(size) < 2
    apart, from_limit = (float(re.findall(r"\de-\d\d", " ".join(line))[0])
                         for line in printed[-2:])  # fmt: skip
    assert apart < 1e-12 and from_limit < 1e-12

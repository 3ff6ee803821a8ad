"""The algorithm that docs/add-an-algorithm.md adds keeps every law, and is FedDyn."""

import importlib.util
import inspect
import itertools
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
NAME = "focusfl.algorithms.feddyn"
LAWS = {
    name: law
    for name, law in vars(test_contract).items()
    if name.startswith("test_") and not name.startswith("test_the_check_of")
}
EXTRA = {"run": [ff.loop, ff.simulate], "dtype": ["float32", "float64"]}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture
def feddyn(tmp_path, monkeypatch):
    """The class, from the page's own file, where the page says to put it."""
    (file,) = blocks("python")
    path = tmp_path / "feddyn.py"
    path.write_text(file)
    spec = importlib.util.spec_from_file_location(NAME, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, NAME, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(ff, "FedDyn", module.FedDyn, raising=False)
    return module.FedDyn


def cases():
    for name, law in LAWS.items():
        others = [one for one in inspect.signature(law).parameters if one != "alg"]
        for choice in itertools.product(*(EXTRA[one] for one in others)):
            labels = [name, *(getattr(a, "__name__", a) for a in choice)]
            options = dict(zip(others, choice, strict=True))
            yield pytest.param(law, options, id="-".join(labels))


@pytest.mark.parametrize(("law", "options"), list(cases()))
@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_it_keeps_every_law_of_the_contract(feddyn, law, options, alpha):
    law(alg=feddyn(alpha=alpha), **options)


def test_the_laws_were_found():
    assert len(LAWS) >= 10 and all(
        "alg" in inspect.signature(f).parameters for f in LAWS.values()
    )


@pytest.mark.parametrize("on_empty", ["skip", "step"])
def test_the_engines_agree(feddyn, on_empty):
    options = {"rounds": 40, "lr": 0.05, "local_steps": 4, "on_empty": on_empty}
    law = who.Replay(some_masks())
    fast, slow = (
        run(feddyn(), quadratic(), law, record="model", **options)
        for run in (ff.simulate, ff.loop)
    )
    assert gap(fast.trajectory, slow.trajectory) < 1e-12
    assert gap(fast.server, slow.server) < 1e-12
    assert gap(fast.clients, slow.clients) < 1e-12


def test_many_local_steps_are_the_exact_minimisation_of_the_paper(feddyn):
    """On quadratics that has a closed form; 400 steps contract to rounding."""
    problem, masks, alpha = quadratic(), some_masks(rounds=30), 2.0
    masks[0] = True
    x, g, h, expected = np.zeros(5), np.zeros((6, 5)), np.zeros(5), []
    for mask in masks:
        ids = np.flatnonzero(mask)
        if len(ids):
            z = np.array(
                [
                    np.linalg.solve(
                        problem.H[i] + alpha * np.eye(5),
                        problem.h[i] + g[i] + alpha * x,
                    )
                    for i in ids
                ]
            )
            g[ids] -= alpha * (z - x)
            h = h - alpha / 6 * (z - x).sum(0)
            x = z.mean(0) - h / alpha
        expected.append(x)
    result = ff.simulate(
        feddyn(alpha), quadratic(), who.Replay(masks), rounds=30, lr=0.1,
        local_steps=400, record="model",
    )  # fmt: skip
    assert gap(result.trajectory[1:], np.array(expected)) < 1e-12


def test_the_server_keeps_the_mean_of_the_corrections(feddyn):
    result = ff.simulate(
        feddyn(), quadratic(), who.Replay(some_masks()), rounds=40, lr=0.05
    )
    assert np.abs(result.clients.g).max() > 0.1
    assert gap(result.server.h, result.clients.g.mean(0)) < 1e-13


@pytest.mark.parametrize(
    "law",
    [who.Full(), who.Uniform(2), who.Bernoulli([0.2, 0.9, 0.4, 0.7, 0.3, 0.6]),
     who.Cyclic(2)],
    ids=lambda law: type(law).__name__,
)  # fmt: skip
@pytest.mark.parametrize("local_steps", [1, 10])
def test_it_ends_at_the_optimum_whoever_takes_part(feddyn, law, local_steps):
    problem = quadratic()
    result = ff.simulate(
        feddyn(alpha=3.0), problem, law, rounds=4000, lr=0.1, local_steps=local_steps
    )
    assert np.abs(result.x - problem.optimum).max() < 1e-11
    own = np.einsum("nij,j->ni", problem.H, problem.optimum) - problem.h
    assert gap(result.clients.g, own) < 1e-10  # each client has learnt its gradient


def test_the_page_prints_what_it_says(feddyn, capsys):
    (code,) = blocks("py")
    exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    for name, size in re.findall(r"^# (\w+) +(\de-\d\d)$", code, re.M):
        (got,) = [float(line[1]) for line in printed if line[0] == name]
        assert got < 1e-12 if float(size) < 1e-12 else 0.5 < got / float(size) < 2

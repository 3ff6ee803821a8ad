"""Poisoned pushes: the experiment is what it says, and its tables are of its runs."""

import json
import runpy
import tempfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import focusfl as ff
from focusfl.flower.protocol import ProtocolServer, Site

ROOT = Path(__file__).parents[2]
HERE = ROOT / "experiments" / "robust"
METHODS = "FOCUS, last", "FOCUS, mean", "SCAFFOLD", "MIFA", "FedAvg"


@pytest.fixture(scope="module")
def script():
    with np.errstate(all="ignore"):
        yield runpy.run_path(str(HERE / "measure.py"))


@pytest.fixture(scope="module")
def results():
    return {name: json.loads((HERE / f"{name}.json").read_text()) for name in ("ridge", "digits")}


@pytest.mark.parametrize("method", METHODS)
def test_without_attack_and_defence_a_run_is_that_of_simulate(script, method):
    algorithm, data = script["METHODS"][method], script["ridge"](0)
    sums = 100 if isinstance(algorithm, ff.Focus) else 1
    lrs = [2.0**-k / data.L / sums for k in (3, 4)]
    ends = script["play"](algorithm, data, lrs, rounds=40, local_steps=3, seed=5).x
    coins = ff.participation.Bernoulli(np.linspace(0.1, 0.9, 100))
    for lr, end in zip(lrs, ends, strict=True):
        run = ff.simulate(
            algorithm, script["ridge_problem"](0), coins, rounds=40, lr=lr, local_steps=3, seed=5
        )
        assert np.abs(end - run.server.x).max() < 1e-10 * np.abs(end).max()


@pytest.mark.parametrize("method", METHODS)
def test_attackers_and_defences_that_do_nothing_change_nothing(script, monkeypatch, method):
    """Attackers that claim the truth, a robust mean that trims nothing, a guard and a norm
    that let everything pass."""
    algorithm, data = script["METHODS"][method], script["ridge"](0)
    lr = 0.1 / data.L / (100 if isinstance(algorithm, ff.Focus) else 1)
    bad = np.arange(100)[None] < 30
    names = script["play"].__globals__
    monkeypatch.setitem(names, "attack", lambda name, view: view.claim)
    monkeypatch.setitem(names, "CLIP", 1e9)
    monkeypatch.setitem(names["TRIM"], "trimmed 10 %", 0.0)
    monkeypatch.setitem(names["GUARDS"], "guard x3", 1e9)

    def end(**options):
        return script["play"](algorithm, data, [lr], rounds=30, local_steps=2, seed=1, **options).x

    plain = end(bad=bad, name="x100")
    defences = ["clip", "trimmed 10 %"] + ["guard x3"] * (method != "FedAvg")
    for defence in defences:
        assert np.allclose(end(bad=bad, name="x100", defence=defence), plain, rtol=1e-10, atol=0)


def test_the_trimmed_mean_and_median_are_those_of_scipy(script):
    rng = np.random.default_rng(0)
    rows, mask = rng.standard_normal((3, 17, 4)), rng.random((3, 17)) < 0.7
    mask[2] = False
    for share in (0, 0.1, 0.3):
        got = script["trimmed"](rows, mask, share)
        for run in (0, 1):
            expected = stats.trim_mean(rows[run, mask[run]], share)
            assert np.allclose(got[run, 0], expected, atol=1e-14)
    median = script["trimmed"](rows, mask, 0.5)
    assert np.allclose(median[0, 0], np.median(rows[0, mask[0]], axis=0), atol=1e-14)
    assert not median[2].any()


@pytest.mark.parametrize(
    ("method", "defence", "attack"),
    [
        ("FOCUS, mean", "trimmed 30 %", "sign flip"),
        ("FedAvg", "trimmed 30 %", "little"),
        ("MIFA", "clip", "adaptive"),
    ],
)
def test_a_row_of_the_results_comes_out_again(script, results, method, defence, attack):
    study = script["Study"]("ridge", seeds=(0,))
    (row,) = [
        row
        for row in results["ridge"]["rows"]
        if (row["method"], row["defence"]) == (method, defence)
    ]
    step = study.setting.steps.index(row["step"])
    for kept, end in [
        (row["alone"], study.end(method, defence, step)),
        (row["attacks"][attack], study.end(method, defence, step, attack)),
    ]:
        assert np.allclose(
            np.array(end["distance"][0], float), np.array(kept["distance"][0], float),
            rtol=1e-3, equal_nan=True,
        )  # fmt: skip


def test_the_tables_are_those_of_the_results(script, results):
    assert script["tables"](results) == (HERE / "table.md").read_text()
    page = (ROOT / "docs" / "robust.md").read_text()
    for table in script["digest"](results).split("\n\n"):
        assert table.strip() in page


@pytest.mark.parametrize(
    "algorithm", [ff.Focus(), ff.Focus(memory="last"), ff.Scaffold(), ff.MIFA()]
)
def test_a_site_that_poisoned_a_deployment_is_removed_without_a_trace(algorithm):
    """After `remove` a job goes on to the optimum of the others, and is far from it before."""
    rng = np.random.default_rng(0)
    names, targets = [f"site-{i}" for i in range(5)], rng.standard_normal((5, 3))
    honest = targets[1:].mean(0)
    with tempfile.TemporaryDirectory() as folder:
        server = ProtocolServer(algorithm, np.zeros(3), names, folder, job="job", lr=0.02)
        sites = {name: Site(algorithm, "job", name) for name in names}

        def play(rounds):
            for _ in range(rounds):
                for i, name in enumerate(names):
                    if name in server.free and rng.random() < 0.7:
                        # The first site's data are wrong, a hundred times as far away.
                        target = targets[i] * (100 if i == 0 else 1)

                        def grad(x, batch, target=target):
                            return x - target

                        reply = sites[name].answer(server.request(name), grad)
                        assert server.receive(name, reply).applied
                server.close_round()
            return np.abs(server.x - honest).max()

        with server:
            assert play(300) > 1
            server.remove("site-0")
            assert play(1500) < 1e-10


def test_within_the_limit_attackers_move_the_model_no_farther_than_the_page_says(script):
    """b M / ((N - b) mu), for FOCUS at rest; without a limit the same attack is far beyond."""
    study = script["Study"]("ridge", seeds=(0,))
    data, bad = study.data[0], study.bad[0]
    H, h = script["ridge_problem"](0).data.values()
    most = script["LIMIT"] * np.linalg.norm(h, axis=1).max()  # gradients at 0 are -h
    for method in ("FOCUS, last", "FOCUS, mean"):
        lr = 0.1 / data.L / 100
        options = {"rounds": 300, "local_steps": 3, "seed": 0, "name": "adaptive", "bad": bad}
        ends = script["play"](script["METHODS"][method], data, [lr] * 5, defence="limit", **options)
        wild = script["play"](script["METHODS"][method], data, [lr] * 5, **options)
        for row, x, far in zip(bad, ends.x, wild.x, strict=True):
            mu = np.linalg.eigvalsh(H[~row].mean(0))[0]
            bound = row.sum() * most / ((~row).sum() * mu)
            optimum = data.optimum(~row)
            assert 0.1 * bound < np.linalg.norm(x - optimum) < bound
            assert not np.linalg.norm(far - optimum) < bound

"""Clients' memory on the device, on the host or on disk; a hundred thousand clients."""

import jax
import numpy as np
import pytest
from helpers import Stopped, Told, bits, quadratic, same, simulate, stop_after, walked

import focusfl as ff
from focusfl.core import tree
from focusfl.participation import Bernoulli, Cyclic, Full, Markov, Replay, Uniform
from focusfl.simulation import checkpoint
from focusfl.simulation import devices as placement
from focusfl.simulation import plan as plan
from focusfl.simulation import rows as store
from focusfl.simulation import runner as simulator
from focusfl.simulation import scan as start
from focusfl.simulation.rows import Rows

ELSEWHERE = ("host", "disk")
HOW = {"rounds": 90, "lr": 0.02, "local_steps": 2}


@pytest.fixture
def short_chunks(monkeypatch):
    """Ten chunks or so where there would be one."""
    monkeypatch.setattr(simulator, "chunk_policy", lambda *_: plan.ChunkPolicy(8, 50, 3))


CASES = [
    (ff.Focus(warm_start=True), lambda: quadratic(20), Uniform(3)),
    (ff.FedAU(cutoff=3), lambda: quadratic(20), Bernoulli(0.05)),
    (ff.FedAWE(), walked, Cyclic(4, overlap=2)),
]
MORE_CASES = [
    (ff.Scaffold(), lambda: ff.problems.ridge(20, 5, 9), Markov(0.2, 0.1)),
    (ff.Scaffnew(), walked, Full()),
    (ff.Focus(warm_start=True), walked, Bernoulli(np.linspace(0.01, 0.4, 20))),
]


def slowly(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "algorithm, problem, who", [*CASES, *(slowly(*case) for case in MORE_CASES)]
)
def test_bits_do_not_depend_on_where_memory_is(
    short_chunks, tmp_path, monkeypatch, algorithm, problem, who
):
    problem = problem()
    x0 = tree.map(lambda a: 1.0 + a, problem.x0)  # nobody's memory begins as zero

    def run(where, folder=None):
        return simulate(
            algorithm, problem, who, **HOW, x0=x0, record_models=True, client_state=where,
            state_folder=folder,
        )  # fmt: skip

    expected = bits(run("device"))
    assert bits(run("host")) == expected
    assert bits(run("disk", tmp_path)) == expected
    monkeypatch.setattr(store, "LARGE", 16)  # bytes: only counters are small now
    assert bits(run("disk", tmp_path)) == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("algorithm", [ff.Focus(warm_start=True), Told()])
def test_a_warm_start_in_parts_is_the_warm_start(monkeypatch, algorithm):
    how = {**HOW, "rounds": 3}
    whole = simulate(algorithm, walked(), Uniform(2), **how)
    monkeypatch.setattr(start, "AT_ONCE", 7 * 5)  # 7 of the 20 clients
    runs = {
        where: simulate(algorithm, walked(), Uniform(2), **how, client_state=where)
        for where in ("device", *ELSEWHERE)
    }
    for where in ELSEWHERE:
        assert bits(runs[where]) == bits(runs["device"])
    for ours, theirs in zip(
        jax.tree.leaves(vars(whole)), jax.tree.leaves(vars(runs["device"])), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_rows_are_read_when_they_are_asked_for():
    masks = np.zeros((4, 20), bool)
    masks[:, [3, 7]] = True
    x0 = np.arange(5.0)
    run = simulate(
        ff.FedAWE(), quadratic(20), Replay(masks), rounds=4, lr=0.01, x0=x0,
        client_state="disk",
    )  # fmt: skip
    z = run.clients.z
    assert isinstance(z, Rows) and z.shape == (20, 5) and len(z) == 20
    assert same(z[4], x0) and not same(z[3], x0) and same(z[[3, 7]], z[2:8][[1, 5]])
    assert np.asarray(z).shape == z.shape and "(20, 5)" in repr(z)
    assert run.clients.last[:].tolist() == [3 if i in (3, 7) else -1 for i in range(20)]


def kept_now_and_then(monkeypatch, every):
    calls = iter(range(10**6))
    monkeypatch.setattr(
        checkpoint.CheckpointFile, "due", lambda self: next(calls) % every == every - 1
    )


@pytest.mark.parametrize("algorithm", [ff.Focus(warm_start=True), slowly(ff.FedAWE())])
def test_a_run_on_disk_goes_on_from_its_checkpoint(short_chunks, monkeypatch, tmp_path, algorithm):
    """What was written after the newest checkpoint must not be seen again."""
    problem, who = walked(), Uniform(6)

    def run(**more):
        return simulate(algorithm, problem, who, **HOW, client_state="disk", **more)

    expected = bits(run())
    kept_now_and_then(monkeypatch, 3)
    for rounds in (36, 54, 75):  # chunks of 8 rounds, kept after every third
        with pytest.raises(Stopped):
            run(checkpoint=tmp_path, callbacks=stop_after(rounds))
        assert (tmp_path / checkpoint.NAME).exists()
    told = []
    result = run(checkpoint=tmp_path, callbacks=lambda done, _: told.append(done))
    assert told[0] > 40 and told[-1] == HOW["rounds"]
    assert bits(result) == expected
    assert bits(run(checkpoint=tmp_path)) == expected  # had ended
    with pytest.raises(ValueError, match="client_state was disk, is device"):
        simulate(algorithm, problem, who, **HOW, checkpoint=tmp_path)
    next(tmp_path.glob("*.rows")).unlink()
    with pytest.raises(ValueError, match="which is missing or of another size"):
        run(checkpoint=tmp_path)


def test_only_rows_of_those_who_took_part_are_written(tmp_path):
    dim = 1024  # rows of two blocks

    class Unsolved(ff.problems.Logistic):
        optimum = np.zeros(dim)  # not asked for, and it takes seconds to find

    problem = Unsolved(np.ones((2000, 1, dim)), np.ones((2000, 1)))
    simulate(
        ff.Focus(), problem, Uniform(5), rounds=10, lr=1e-6, client_state="disk",
        checkpoint=tmp_path,
    )  # fmt: skip
    file = tmp_path / store.NAME.format(0)
    assert file.stat().st_size == 2 * 2000 * dim * 8
    assert 0 < file.stat().st_blocks * 512 <= 50 * dim * 8 * 1.5


def test_auto_leaves_the_device_when_it_is_too_small_and_says_so(monkeypatch, capsys):
    problem, who = quadratic(50), Uniform(4)
    expected = simulate(ff.Focus(), problem, who, **HOW)
    assert not capsys.readouterr().err
    data = problem.data
    room = placement.size((data, problem.eval_data, problem.x0)) + 100
    monkeypatch.setattr(placement, "available", lambda: room)
    assert bits(simulate(ff.Focus(), problem, who, **HOW)) == bits(expected)
    assert "client_state='disk': what 50 clients remember" in capsys.readouterr().err
    with pytest.raises(ValueError, match='With client_state="disk" only data'):
        simulate(ff.Focus(), problem, who, **HOW, client_state="device")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"client_state": "cloud"}, "client_state must be one of"),
        ({"client_state": "host", "checkpoint": "here"}, 'Use "disk"'),
        (
            {"client_state": "disk", "checkpoint": "here", "state_folder": "there"},
            "Leave it out",
        ),
        ({"client_state": "disk", "state_folder": "/proc/nowhere"}, "can be written to"),
    ],
)
def test_what_cannot_be_is_refused(monkeypatch, tmp_path, change, message):
    monkeypatch.chdir(tmp_path)
    arguments = {
        "algorithm": ff.Focus(), "problem": quadratic(), "participation": Full(),
        **HOW, **change,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)


def test_a_disk_that_is_too_small_is_refused(monkeypatch, tmp_path):
    class Small:
        free = 100

    monkeypatch.setattr(store, "disk_usage", lambda _: Small)
    with pytest.raises(ValueError, match="may take .* GiB, and the disk of"):
        simulate(
            ff.Focus(), quadratic(), Full(), **HOW, client_state="disk",
            state_folder=tmp_path,
        )  # fmt: skip


def test_focus_is_exact_with_a_hundred_thousand_clients():
    many, rng = 10**5, np.random.default_rng(0)
    A = rng.standard_normal((many, 2, 5))
    noise = 2 * rng.standard_normal((many, 2))
    problem = ff.problems.Logistic(A, np.where(A.sum(2) + noise > 0, 1.0, -1.0), 0.1)
    run = simulate(
        ff.Focus(), problem, Uniform(many // 10), rounds=800, lr=0.2 / many,
        local_steps=2, eval_every=50,
    )  # fmt: skip
    assert run.metrics["distance"][-1] < 1e-13

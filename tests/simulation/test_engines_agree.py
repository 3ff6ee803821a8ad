"""Law 10: all engines, on all array libraries, give the same run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ALL, NAMED, VECTORS, Diary, gap, quadratic, same, some_masks

import focusfl as ff
from focusfl.simulation import plan as layout
from focusfl.simulation import runner as simulation

VECTOR_OF = [
    ("fedavg", ff.FedAvg(), "skip"),
    ("fedavg_server_lr_half", ff.FedAvg(server_lr=0.5), "skip"),
    ("fedau_cutoff5", ff.FedAU(cutoff=5), "skip"),
    ("fedau_cutoff50", ff.FedAU(cutoff=50), "skip"),
    ("fedawe", ff.FedAWE(), "skip"),
    ("scaffold_option1", ff.Scaffold(option=1), "skip"),
    ("scaffold_option2", ff.Scaffold(option=2), "skip"),
    ("scaffnew", ff.Scaffnew(), "skip"),
    ("mifa_step_on_empty", ff.MIFA(), "step"),
    ("fedvarp", ff.FedVARP(), "skip"),
    ("focus_skip_on_empty", ff.Focus(memory="last"), "skip"),
    ("focus_step_on_empty", ff.Focus(memory="last"), "step"),
    ("focus_warm_start", ff.Focus(warm_start=True, memory="last"), "skip"),
]
FEDERATED = ["bernoulli_tau3", "cyclic_tau1", "ridge_weighted_tau5"]
both = pytest.mark.parametrize("run", [ff.loop, ff.simulate])


def _gather(masks, monkeypatch):
    """Have participants share fewer slots than there are clients."""
    monkeypatch.setattr(layout, "SPARE", 0)
    (slots,) = layout.cohort_sizes(masks.sum(1), masks.shape[1])
    assert slots < masks.shape[1]


@both
@pytest.mark.parametrize("file", FEDERATED)
@pytest.mark.parametrize("name, alg, on_empty", VECTOR_OF, ids=lambda v: str(v))
def test_trajectories_equal_the_independent_ones(file, name, alg, on_empty, run, monkeypatch):
    v = np.load(VECTORS / f"{file}.npz")
    masks = v["masks"]
    if file == "cyclic_tau1":
        _gather(masks, monkeypatch)
    result = run(
        alg, ff.problems.Quadratic(v["H"], v["h"]), ff.participation.Replay(masks),
        rounds=len(masks), lr=float(v["eta"]), local_steps=int(v["tau"]), x0=v["x0"],
        seed=0, options=ff.Options(record_models=True, on_empty=on_empty),
    )  # fmt: skip
    assert np.abs(result.trajectory - v[f"traj_{name}"]).max() < 1e-10


@pytest.mark.parametrize(
    "alg", [*(alg for alg in ALL if not isinstance(alg, NAMED)), Diary()], ids=repr
)
@pytest.mark.parametrize(
    "on_empty, local_steps, p", [("step", 1, 0.12), ("skip", 4, 0.35)]
)  # Hessians as they are, diagonal
def test_loop_and_simulate_agree(alg, on_empty, local_steps, p, monkeypatch):
    four = layout.QUICK._replace(chunk=32)  # chunks, the last of them padded
    monkeypatch.setattr(simulation, "chunk_policy", lambda *_: four)
    problem, masks = quadratic(), some_masks(rounds=100, p=p)
    if local_steps == 1:
        _gather(masks, monkeypatch)
    slow, fast = (
        run(
            alg, problem, ff.participation.Replay(masks), rounds=100, lr=0.03,
            local_steps=local_steps,
            options=ff.Options(record_models=True, on_divergence="ignore", on_empty=on_empty),
        )
        for run in (ff.loop, ff.simulate)
    )  # fmt: skip
    size = 1 + np.abs(slow.trajectory).max()  # ProxSkip is not made for some clients
    assert gap(slow.trajectory, fast.trajectory) < 1e-12 * size
    assert gap(slow.server, fast.server) < 1e-12 * size
    # gradients, and what is divided by lr: the model's error times L or 1 / lr
    assert slow.diverged_at == fast.diverged_at
    if slow.diverged_at is None:
        assert gap(slow.clients, fast.clients) < 1e-10 * size
    for name in slow.metrics:
        scale = 1 + np.abs(slow.metrics[name])
        assert np.max(np.abs(slow.metrics[name] - fast.metrics[name]) / scale) < 1e-12


@pytest.mark.parametrize("alg", ALL, ids=repr)
def test_numpy_jax_and_torch_leaves_give_the_same_run(alg):
    torch = pytest.importorskip("torch")
    with jax.enable_x64(True):
        runs = [
            ff.loop(
                alg, quadratic(), ff.participation.Uniform(3), rounds=30, lr=0.05,
                local_steps=3, array=array,
                options=ff.Options(record_models=True, on_divergence="ignore"),
            )
            for array in (np.asarray, jnp.asarray, torch.asarray)
        ]  # fmt: skip
    for other in runs[1:]:
        assert gap(runs[0].trajectory, other.trajectory) < 1e-12


def test_a_sweep_equals_its_runs():
    problem, who = quadratic(), ff.participation.Bernoulli(0.4)
    lrs = [0.01, 0.05, 50.0]
    how = {
        "rounds": 300,
        "local_steps": 3,
        "options": ff.Options(record_models=True, on_divergence="ignore"),
    }
    together = ff.sweep(ff.Focus(), problem, who, lrs=lrs, **how)
    for lr, result in zip(lrs, together, strict=True):
        alone = ff.simulate(ff.Focus(), problem, who, lr=lr, **how)
        assert result.diverged_at == alone.diverged_at
        if alone.diverged_at is None:
            assert gap(result.clients, alone.clients) < 1e-11
        scale = 1 + np.abs(alone.trajectory).max()
        assert gap(result.trajectory, alone.trajectory) < 1e-12 * scale


@both
def test_the_same_seed_gives_the_same_bits(run):
    a, b = (
        run(
            ff.Focus(), quadratic(), ff.participation.Bernoulli(0.3), rounds=30,
            lr=0.05, local_steps=3, seed=7,
        )
        for _ in range(2)
    )  # fmt: skip
    assert same(a.x, b.x) and same(a.metrics, b.metrics)


def test_another_seed_gives_another_run():
    a, b = (
        ff.simulate(
            ff.Focus(),
            quadratic(),
            ff.participation.Uniform(2),
            rounds=5,
            lr=0.05,
            seed=s,
        )
        for s in (0, 1)
    )
    assert not np.array_equal(a.x, b.x)


@both
def test_two_algorithms_under_one_seed_meet_the_same_participants(run):
    who = ff.participation.Bernoulli(0.3)
    counts = [
        run(alg, quadratic(), who, rounds=50, lr=0.01, seed=3).metrics["up"]
        for alg in (ff.Focus(), ff.FedAvg())
    ]
    assert np.array_equal(*counts)
    drawn = ff.participation.masks(who, 6, 50, seed=3)
    assert np.array_equal(counts[0][1:], drawn.sum(1))


def test_convex_problems_run_in_float64_whatever_the_flag_says():
    for flag in (False, True):
        with jax.enable_x64(flag):
            result = ff.simulate(
                ff.Focus(), quadratic(), ff.participation.Full(), rounds=3, lr=0.05
            )
            assert result.x.dtype == "float64"
            assert jnp.ones(1).dtype == ("float64" if flag else "float32")

"""What methods of other papers claim, one law each, and where they end."""

import runpy

import numpy as np
import pytest
from helpers import VECTORS, gap, quadratic, some_masks

import focusfl as ff
from focusfl import participation as who
from focusfl.core import Round

SOME = who.Replay(some_masks())
COINS = who.Bernoulli([0.2, 0.9, 0.4, 0.7, 0.3, 0.6])


def run(alg, law=SOME, engine=ff.loop, **changes):
    """A short run; the reference engine has nothing to compile."""
    options = {
        "rounds": 40,
        "lr": 0.05,
        "local_steps": 4,
        "options": ff.Options(record_models=True),
    }
    return engine(alg, quadratic(), law, **{**options, "x0": np.linspace(-1, 1, 5), **changes})


def end(alg, law, rounds=3000, lr=0.05, local_steps=3, **changes):
    """A run that has come to its end."""
    return run(alg, law, ff.simulate, rounds=rounds, lr=lr, local_steps=local_steps, **changes)


def falling(index):
    """A step that is another one in every round."""
    return 0.05 / (1 + index)


def own_gradients(problem):
    """Of every client at the optimum; they are far from 0."""
    found = np.einsum("nij,j->ni", problem.H, problem.optimum) - problem.h
    assert np.abs(found).max() > 0.1
    return found


# Against trajectories that were computed without this library: tests/vectors.

VECTOR_OF = {
    "feddyn": ff.FedDyn(), "feddyn_alpha2": ff.FedDyn(2.0),
    "fedlt": ff.FedLT(), "fedlt_rho_half": ff.FedLT(0.5),
    "fedadmm": ff.FedADMM(), "fedadmm_rho2": ff.FedADMM(2.0),
    "amplified_scaffold": ff.AmplifiedScaffold(),
    "amplified_scaffold_period3": ff.AmplifiedScaffold(3, 1.0),
    "fednova": ff.FedNova(), "fednova_momentum": ff.FedNova(0.7, 0.5),
    "tamuna": ff.TAMUNA(),
    "fedbuff": ff.FedBuff(), "fedbuff_size3": ff.FedBuff(3, 0.7),
}  # fmt: skip
FILES = ["bernoulli_tau3", "cyclic_tau1", "ridge_weighted_tau5"]


@pytest.mark.parametrize(
    "engine, file", [*((ff.loop, file) for file in FILES), (ff.simulate, FILES[0])]
)
@pytest.mark.parametrize("name", VECTOR_OF)
def test_trajectories_equal_the_independent_ones(file, name, engine):
    v, others = np.load(VECTORS / f"{file}.npz"), np.load(VECTORS / "others.npz")
    result = engine(
        VECTOR_OF[name], ff.problems.Quadratic(v["H"], v["h"]), who.Replay(v["masks"]),
        rounds=len(v["masks"]), lr=float(v["eta"]), local_steps=int(v["tau"]),
        x0=v["x0"], options=ff.Options(record_models=True),
    )  # fmt: skip
    assert np.abs(result.trajectory - others[f"{file}_{name}"]).max() < 1e-10
    assert np.abs(result.trajectory[-1] - v["x0"]).max() > 1e-3  # it went somewhere


def test_every_independent_trajectory_was_compared_and_is_what_its_program_writes():
    program = runpy.run_path(str(VECTORS / "make_others.py"))
    kept = dict(np.load(VECTORS / "others.npz"))
    assert kept.keys() == {f"{file}_{name}" for file in FILES for name in VECTOR_OF}
    for file in FILES:
        for name, trajectory in program["all_of"](file).items():
            assert gap(trajectory, kept[f"{file}_{name}"]) < 1e-12


# FedDyn.


@pytest.mark.parametrize("lr", [0.05, falling])
@pytest.mark.parametrize("alg", [ff.FedDyn(), ff.FedDyn(2.0)], ids=repr)
def test_feddyn_keeps_h_at_the_mean_of_the_corrections(alg, lr):
    """Whatever alpha is in which round."""
    result = run(alg, lr=lr)
    assert np.abs(result.clients.g).max() > 0.1
    assert gap(result.server.h, result.clients.g.mean(0)) < 1e-13


def test_many_local_steps_are_the_exact_minimisation_of_feddyns_paper():
    """On quadratics that has a closed form; 400 steps contract to rounding."""
    problem, masks, alpha = quadratic(), some_masks(rounds=30), 2.0
    x, g, h, expected = np.zeros(5), np.zeros((6, 5)), np.zeros(5), []
    for mask in masks:
        ids = np.flatnonzero(mask)
        if len(ids):
            left = problem.H[ids] + alpha * np.eye(5)
            right = problem.h[ids] + g[ids] + alpha * x
            z = np.linalg.solve(left, right[..., None])[..., 0]
            g[ids] -= alpha * (z - x)
            h = h - alpha / 6 * (z - x).sum(0)
            x = z.mean(0) - h / alpha
        expected.append(x)
    law = who.Replay(masks)
    result = run(ff.FedDyn(alpha), law, rounds=30, lr=0.1, local_steps=400, x0=None)
    assert gap(result.trajectory[1:], np.array(expected)) < 1e-12


# Fed-LT and FedADMM.


@pytest.mark.parametrize("lr", [0.05, falling])
@pytest.mark.parametrize("alg", [ff.FedLT(), ff.FedLT(0.5)], ids=repr)
def test_fed_lt_keeps_x_at_the_mean_of_all_z(alg, lr):
    result = run(alg, lr=lr)
    assert np.abs(result.clients.z - result.x).max() > 0.01
    assert gap(result.x, result.clients.z.mean(0)) < 1e-13


@pytest.mark.parametrize("lr", [0.05, falling])
@pytest.mark.parametrize("alg", [ff.FedADMM(), ff.FedADMM(2.0)], ids=repr)
def test_fedadmm_keeps_x_at_the_mean_of_models_and_multipliers(alg, lr):
    """Whatever rho is in which round."""
    result = run(alg, lr=lr)
    w, a, rho = result.clients
    assert np.abs(a).max() > 0.1
    assert gap(result.x, (w + a / rho[:, None]).mean(0)) < 1e-13


def prox(problem, i, point, rho):
    """The minimiser of f_i(w) + |w - point|^2 / (2 rho), where f_i is quadratic."""
    left = problem.H[i] + np.eye(5) / rho
    return np.linalg.solve(left, problem.h[i] + point / rho)


@pytest.mark.parametrize("alg", [ff.FedLT(0.5), ff.FedADMM(2.0)], ids=repr)
def test_many_local_steps_are_the_splitting_itself(alg):
    """Peaceman and Rachford's, and the method of multipliers, by closed forms."""
    problem, masks, rho = quadratic(), some_masks(rounds=30), 0.5
    reflects = isinstance(alg, ff.FedLT)
    x, own, a = np.zeros(5), np.zeros((6, 5)), np.zeros((6, 5))
    expected = []
    for mask in masks:
        for i in np.flatnonzero(mask):
            if reflects:
                own[i] += 2 * (prox(problem, i, 2 * x - own[i], rho) - x)
            else:
                w = prox(problem, i, x - rho * a[i], rho)
                a[i] += (w - x) / rho
                own[i] = w + rho * a[i]
        x = own.mean(0)
        expected.append(x)
    law = who.Replay(masks)
    result = run(alg, law, rounds=30, lr=0.1, local_steps=400, x0=None)
    assert gap(result.trajectory[1:], np.array(expected)) < 1e-12


@pytest.mark.parametrize("alg", [ff.FedDyn(), ff.FedLT(), ff.FedADMM()], ids=repr)
def test_an_optimizer_on_the_server_leaves_them_exact(alg):
    """It moves x elsewhere; what clients agree on is kept beside it."""
    wrapped = ff.ServerOpt(alg, "momentum", 0.5, beta1=0.3)
    result = end(wrapped, COINS)
    assert result.metrics["distance"][-1] < 1e-12


# Amplified SCAFFOLD.


def test_a_window_of_one_round_without_amplification_is_scaffold():
    for law in (SOME, COINS):
        amplified = run(ff.AmplifiedScaffold(period=1, gamma=1.0), law)
        assert gap(amplified.trajectory, run(ff.Scaffold(), law).trajectory) < 1e-13


def test_amplified_scaffold_is_its_rule_written_anew():
    """As its authors' program has it: tables of all clients, renewed at window ends."""
    problem, masks, gamma = quadratic(), some_masks(rounds=30), 1.5
    masks = masks[masks.any(1)]  # what is skipped is in no window
    x = begin = np.linspace(-1, 1, 5)
    c, own = np.zeros(5), np.zeros((6, 5))
    sums, samples, expected = np.zeros((6, 5)), np.zeros(6), [x]
    for r, mask in enumerate(masks):
        ends = []
        for i in np.flatnonzero(mask):
            z = x
            for _ in range(4):
                g = problem.H[i] @ z - problem.h[i]
                sums[i], samples[i] = sums[i] + g, samples[i] + 1
                z = z - 0.05 * (g - own[i] + c)
            ends.append(z)
        x = np.mean(ends, 0)
        if (r + 1) % 3 == 0:
            x = begin = begin + gamma * (x - begin)
            there = samples > 0
            own[there] = sums[there] / samples[there, None]
            c, sums, samples = own.mean(0), 0 * sums, 0 * samples
        expected.append(x)
    result = run(ff.AmplifiedScaffold(3, gamma), who.Replay(masks), rounds=len(masks))
    assert gap(result.trajectory, np.array(expected)) < 1e-13


def test_rounds_of_nobody_are_in_no_window():
    masks = some_masks()
    assert (~masks.any(1)).sum() == 3
    alg, full = ff.AmplifiedScaffold(3, 1.5), masks[masks.any(1)]
    without = run(alg, who.Replay(full), rounds=len(full))
    assert gap(run(alg).x, without.x) == 0


def test_amplified_scaffold_keeps_the_mean_of_what_clients_will_take():
    result = run(ff.AmplifiedScaffold(3))
    assert np.abs(result.server.mean - result.server.c).max() > 1e-4
    assert gap(result.server.mean, result.clients.mean.mean(0)) < 1e-13


# FedNova.


@pytest.mark.parametrize("server_lr", [1.0, 0.5])
def test_fednova_with_equal_steps_is_fedavg(server_lr):
    nova, average = run(ff.FedNova(server_lr)), run(ff.FedAvg(server_lr))
    assert gap(nova.trajectory, average.trajectory) < 1e-14


def test_fednova_with_momentum_averages_what_heavy_ball_does():
    problem, x = quadratic(), np.linspace(-1, 1, 5)
    z, v = np.tile(x, (6, 1)), np.zeros((6, 5))
    for _ in range(4):
        v = 0.6 * v + np.einsum("nij,nj->ni", problem.H, z) - problem.h
        z = z - 0.05 * v
    result = run(ff.FedNova(momentum=0.6), who.Full(), rounds=1)
    assert gap(result.x, z.mean(0)) < 1e-14


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_fednova_divides_by_how_often_gradients_count(momentum):
    """Of gradients that are all the same, what is sent is just the gradient."""
    alg, g = ff.FedNova(momentum=momentum), np.arange(3.0)
    for steps in (1, 2, 7):
        rd = Round(0, 0.05, steps, 5, 2)
        down = alg.broadcast(alg.init(np.ones(3))[0])
        local = alg.pull(None, down)
        for _ in range(steps):
            local = alg.step(local, lambda x, batch: g, None, rd)
        assert gap(alg.push(None, down, local, rd)[1]["d"], -g) < 1e-14


def unequal(alg, steps, rounds=400, lr=0.002):
    """Rounds of everybody, by hand: client i takes steps[i] steps."""
    problem = quadratic()
    server, client = alg.init(np.zeros(5))
    for index in range(rounds):
        down, ups = alg.broadcast(server), []
        for i, own in enumerate(steps):
            rd, local = Round(index, lr, own, 6, 6), alg.pull(client, down)
            for _ in range(own):
                local = alg.step(local, lambda x, b, i=i: problem.H[i] @ x - problem.h[i], None, rd)
            ups.append(alg.push(client, down, local, rd)[1])
        total = {name: sum(up[name] for up in ups) for name in ups[0]}
        server = alg.update(server, total, rd)
    return server.x


def test_with_unequal_steps_fednova_does_not_favour_those_who_take_more():
    """FedAvg ends at the optimum of f_i weighted by their steps, FedNova does not.

    Both to first order in lr: that the steps of one client are in a row is a bias too.
    """
    problem, steps = quadratic(), np.array([1, 2, 4, 8, 16, 32])
    favoured = np.linalg.solve(np.tensordot(steps, problem.H, 1), np.tensordot(steps, problem.h, 1))
    far = gap(favoured, problem.optimum)
    nova, average = (unequal(alg, steps) for alg in (ff.FedNova(), ff.FedAvg()))
    assert gap(average, favoured) < 0.1 * far and gap(nova, problem.optimum) < 0.1 * far


# TAMUNA.


def test_with_everybody_there_tamuna_is_scaffnew_and_so_is_chi_1():
    for alg, law in ((ff.TAMUNA(), who.Full()), (ff.TAMUNA(chi=1.0), SOME)):
        assert gap(run(alg, law).trajectory, run(ff.Scaffnew(), law).trajectory) < 1e-14
    assert gap(run(ff.TAMUNA()).x, run(ff.Scaffnew()).x) > 1e-4


def test_tamuna_keeps_h_summing_to_zero():
    result = run(ff.TAMUNA())
    assert np.abs(result.clients.h).max() > 0.1
    assert np.abs(result.clients.h.sum(0)).max() < 1e-12


def test_tamunas_factor_is_the_largest_of_its_theorem():
    def chi(active, clients):
        return ff.TAMUNA().factor(Round(0, 0.1, 2, clients, active))

    for n in (2, 6, 100):
        for s in range(2, n + 1):
            assert chi(s, n) == pytest.approx(n * (s - 1) / (s * (n - 1)))
            assert 1 / 2 < chi(s, n) <= 1
    for s, n in ((1, 6), (0.2, 6.5), (0.3, 0.3), (1, 1), (0.9, 1.2), (1.5, 20)):
        assert 1 / 2 <= chi(s, n) <= 1  # weights may add up to anything


def test_tamuna_is_exact_exactly_where_clients_meet():
    """As Scaffnew: and theory does not claim more."""
    problem, options = quadratic(), {"lr": 0.04, "local_steps": 3}
    laws = (who.Uniform(2), COINS, who.Cyclic(3, overlap=1), who.Cyclic(2))
    ends, said = [], []
    for law in laws:
        result = end(ff.TAMUNA(), law, **options)
        ends.append(result.metrics["distance"][-1])
        said.append(ff.theory.predict(ff.TAMUNA(), problem, law, **options).bias)
    assert max(ends[:3]) < 1e-12 and ends[3] > 1e-2
    assert said == [0, 0, None, None]


# FedBuff.


def test_fedbuff_of_everybody_with_room_for_them_is_fedavg():
    for server_lr in (1.0, 0.5):
        buffered = run(ff.FedBuff(6, server_lr), who.Full())
        average = run(ff.FedAvg(server_lr), who.Full())
        assert gap(buffered.trajectory, average.trajectory) < 1e-14


@pytest.mark.parametrize("size", [1, 5])
def test_fedbuff_is_its_rule_written_anew(size):
    """Clients come in with what they did on the model they left with."""
    problem, x, version = quadratic(), np.linspace(-1, 1, 5), 0
    left_with, buffer, expected, stale = [(x, 0)] * 6, [], [x], []
    for mask in some_masks():
        for i in np.flatnonzero(mask):
            z, before = left_with[i]
            for _ in range(4):
                z = z - 0.05 * (problem.H[i] @ z - problem.h[i])
            stale.append(version - before)
            buffer.append((z - left_with[i][0]) / np.sqrt(1 + version - before))
        if len(buffer) >= size:
            x, version, buffer = x + np.mean(buffer, 0), version + 1, []
        for i in np.flatnonzero(mask):
            left_with[i] = (x, version)
        expected.append(x)
    result = run(ff.FedBuff(size))
    assert max(stale) > 3 and result.server.version == version > 5
    assert gap(result.trajectory, np.array(expected)) < 1e-13
    assert result.server.count == len(buffer) < size


def test_fedbuff_has_a_bias_that_a_smaller_step_does_not_take_away():
    problem, law = quadratic(), who.Bernoulli([0.05, 0.9, 0.9, 0.9, 0.9, 0.9])
    for lr, rounds in ((0.02, 2000), (0.005, 8000)):
        result = end(ff.FedBuff(2), law, rounds, lr, local_steps=2)
        mean = result.trajectory[-rounds // 2 :].mean(0)
        assert gap(mean, problem.optimum) > 0.1 * np.abs(problem.optimum).max()
    assert ff.FedBuff().max_exact_lr(1.0, 2) == 0


# Where they end.

EXACT = [
    ff.FedDyn(), ff.FedDyn(3.0), ff.FedLT(), ff.FedLT(0.3), ff.FedADMM(),
    ff.FedADMM(3.0), ff.AmplifiedScaffold(), ff.AmplifiedScaffold(3, 1.5),
]  # fmt: skip
# What clients have learnt of their gradient at the optimum, after steps of 0.05.
LEARNT = {
    ff.FedDyn: lambda alg, run: run.clients.g,
    ff.FedLT: lambda alg, run: (run.x - run.clients.z) / (alg.rho or 3 * 0.05),
    ff.FedADMM: lambda alg, run: -run.clients.a,
    ff.AmplifiedScaffold: lambda alg, run: run.clients.mean,
}


@pytest.mark.parametrize(
    "alg, law",
    [(alg, COINS) for alg in EXACT]
    + [(alg, law) for alg in EXACT[::2] for law in (who.Uniform(2), who.Cyclic(2))],
    ids=repr,
)
def test_exact_ones_end_at_the_optimum_whoever_takes_part(alg, law):
    """Each client has learnt its gradient there, too."""
    problem = quadratic()
    assert 0.05 < alg.max_exact_lr(problem.L, 3)
    result = end(alg, law)
    assert result.metrics["distance"][-1] < 1e-12
    assert gap(LEARNT[type(alg)](alg, result), own_gradients(problem)) < 1e-10

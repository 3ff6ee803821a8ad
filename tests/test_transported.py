"""Trackers that follow the model: T-FOCUS and T-SCAFFOLD."""

import runpy
from dataclasses import replace

import numpy as np
import pytest
from helpers import VECTORS, gap, quadratic, some_masks

import focusfl as ff
from focusfl.algorithms.transported import secant
from focusfl.simulation.divergence import tracker_norm
from focusfl.simulation.reference import states
from focusfl.simulation.spec import RunSpec
from focusfl.studies.summary import tracking_gap

FULL = ff.participation.Full()
EACH = [
    ff.TFocus(),
    ff.TFocus(curvature=1.0),
    ff.TScaffold(),
    ff.TScaffold(option=2),
    ff.TScaffold(option="1-up"),
]
VECTOR_OF = {
    "focus_mean": ff.Focus(memory="mean"),
    "anchored_focus": ff.AnchoredFocus(),
    "t_focus": ff.TFocus(),
    "t_scaffold_1": ff.TScaffold(option=1),
    "t_scaffold_2": ff.TScaffold(option=2),
    "t_scaffold_1up": ff.TScaffold(option="1-up"),
}
each = pytest.mark.parametrize("algorithm", EACH, ids=repr)
# What is proved of option 2 stops at small steps: see docs/theory.md.
pytestmark = pytest.mark.filterwarnings("ignore::focusfl.RestWarning")


@pytest.mark.parametrize("name", VECTOR_OF)
def test_the_vectors_are_those_that_the_script_writes(name):
    script = runpy.run_path(str(VECTORS / "make_past_the_paper_ours.py"))
    found = script["METHODS"][name](script["Setting"]("cyclic_tau1"))
    stored = np.load(VECTORS / "past_the_paper_ours.npz")[f"cyclic_tau1_{name}"]
    assert np.abs(found - stored).max() < 1e-12


@pytest.mark.parametrize(
    "file, run",
    [
        ("bernoulli_tau3", ff.loop),
        ("bernoulli_tau3", ff.simulate),
        ("cyclic_tau1", ff.loop),
        ("ridge_weighted_tau5", ff.loop),
    ],
)
@pytest.mark.parametrize("name", VECTOR_OF)
def test_trajectories_equal_the_independent_ones(file, name, run):
    v, theirs = (np.load(VECTORS / f"{f}.npz") for f in (file, "past_the_paper_ours"))
    result = run(
        VECTOR_OF[name], ff.problems.Quadratic(v["H"], v["h"]),
        ff.participation.Replay(v["masks"]), rounds=len(v["masks"]), lr=float(v["eta"]),
        local_steps=int(v["tau"]), x0=v["x0"], options=ff.Options(record_models=True),
    )  # fmt: skip
    assert np.abs(result.trajectory - theirs[f"{file}_{name}"]).max() < 1e-10


@each
@pytest.mark.parametrize("weighted", [False, True])
def test_the_tracker_is_the_sum_of_all_guesses_where_the_server_is(algorithm, weighted):
    w = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 0.25]) if weighted else np.ones(6)
    problem = ff.problems.Quadratic(quadratic().H, quadratic().h, weights=w)
    who = ff.participation.Replay(some_masks())
    spec = RunSpec(algorithm, problem, who, 40, [0.03], 3, np.ones(5), [0])
    for state, _ in states(spec.validated()):
        x, line = state.server.x, state.server.line
        guesses = [c.grad + c.rho * (x - c.point) for c in state.clients]
        assert gap(line.at(x), w @ guesses) < 1e-12
        assert gap(line.rho, w @ [c.rho for c in state.clients]) < 1e-12


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (ff.TFocus(curvature=0.0), ff.Focus(memory="last")),
        (
            ff.TScaffold(option=1, momentum=0.0, gamma=1.0, curvature=0.0),
            ff.Scaffold(option=1),
        ),
        (ff.TScaffold(option="1-up", momentum=0.0, curvature=0.0), ff.Scaffold()),
    ],
    ids=repr,
)
def test_without_curvature_they_are_focus_and_scaffold(ours, theirs):
    what = quadratic(), ff.participation.Replay(some_masks())
    a, b = (
        ff.loop(
            alg, *what, rounds=40, lr=0.05, local_steps=3, options=ff.Options(record_models=True)
        )
        for alg in (ours, theirs)
    )
    assert gap(a.trajectory, b.trajectory) < 1e-14


def one_at_a_time(problem, lr, masks, finito):
    """SAG and Finito as their papers have them, for several participants."""
    x, N = problem.x0, problem.num_clients
    g, points, seen = np.zeros_like(problem.h), np.zeros_like(problem.h), np.zeros(N)
    for mask in masks:
        for i in np.flatnonzero(mask):
            g[i], points[i], seen[i] = problem.H[i] @ x - problem.h[i], x, 1
        x = (points.mean(0) if finito and seen.all() else x) - lr * g.mean(0)
    return x


@pytest.mark.parametrize("finito", [False, True])
def test_with_one_local_step_they_are_sag_and_finito(finito):
    problem, lr, S, N = quadratic(), 0.05, 2, 6
    some = [np.isin(np.arange(N), [r % N, (r + 1 + r // N % 4) % N]) for r in range(30)]
    everybody = np.ones((1, N), bool)  # so that there is a mean of points
    shares = [(ff.TFocus(curvature=float(finito)), lr / N, [*everybody, *some])]
    if not finito:  # with everybody there gamma is another
        fixed = ff.TScaffold(momentum=0.0, gamma=S / N, curvature=float(finito))
        shares.append((fixed, lr, some))
    for alg, step, masks in shares:
        who = ff.participation.Replay(np.array(masks))
        run = ff.loop(alg, problem, who, rounds=len(masks), lr=step)
        assert gap(run.x, one_at_a_time(problem, lr, masks, finito)) < 1e-13


def test_finito_is_t_scaffold_too():
    """With everybody there, and gamma their share: x is the mean of the points, less
    that of the gradients."""
    problem, lr = quadratic(), 0.05
    alg = ff.TScaffold(momentum=0.0, gamma=1.0, curvature=1.0)
    run = ff.loop(alg, problem, FULL, rounds=10, lr=lr)
    masks = np.ones((10, 6), bool)
    assert gap(run.x, one_at_a_time(problem, lr, masks, True)) < 1e-13


def test_a_curvature_is_measured_between_visits_and_cut():
    H, h = np.tile(3.0 * np.eye(2), (2, 1, 1)), np.arange(4.0).reshape(2, 2)
    problem = ff.problems.Quadratic(H, h)
    for lr, rho in [(0.01, 3.0), (0.25, 2.0)]:  # at most 1 / (N lr)
        first, second = (
            ff.loop(ff.TFocus(), problem, FULL, rounds=r, lr=lr).clients for r in (1, 2)
        )
        assert np.all(first.rho == 0) and np.all(first.seen == 1)
        assert second.rho == pytest.approx([rho, rho])
    one = np.ones(2)
    assert secant(one, -one, 5.0) == 0 and secant(0 * one, one, 5.0) == 0


def test_what_gamma_is_follows_who_took_part():
    what = quadratic(), ff.participation.Replay(some_masks(rounds=40, p=0.5))
    run, own = (
        ff.loop(ff.TScaffold(gamma=gamma), *what, rounds=40, lr=0.02, local_steps=2)
        for gamma in (None, 0.7)
    )
    share = 1.0
    for mask in some_masks(rounds=40, p=0.5):
        share = (share + mask.mean()) / 2 if mask.any() else share
    assert run.server.share == pytest.approx(share, rel=1e-14)
    assert gap(run.x, own.x) > 1e-4


def test_option_2_runs_alike_in_both_engines():
    """The others are in the list that tests of engines go through."""
    who, how = ff.participation.Bernoulli(0.5), {"rounds": 60, "lr": 0.03}
    fast, slow = (
        run(ff.TScaffold(option=2), quadratic(), who, **how, local_steps=4)
        for run in (ff.simulate, ff.loop)
    )
    assert gap(fast.server, slow.server) < 1e-12
    assert gap(fast.clients, slow.clients) < 1e-10


@each
def test_they_end_at_the_optimum(algorithm):
    who = ff.participation.Bernoulli(np.linspace(0.2, 0.9, 6))
    run = ff.simulate(
        algorithm, quadratic(), who, rounds=600, lr=0.03, local_steps=4
    )  # fmt: skip
    assert run.metrics["distance"][-1] < 1e-12


def test_an_optimizer_on_the_server_moves_the_tracker_with_the_model():
    """A line says what all gradients sum to wherever the server went."""
    who, alg = (
        ff.participation.Bernoulli(0.5),
        ff.ServerOpt(ff.TFocus(), "momentum", 0.3),
    )
    run = ff.simulate(alg, quadratic(), who, rounds=800, lr=0.02, local_steps=3)
    assert run.metrics["distance"][-1] < 1e-12
    c, x = run.clients, run.x
    guesses = c.grad + c.rho[:, None] * (x - c.point)
    assert gap(run.server.inner.line.at(x), guesses.sum(0)) < 1e-12


def test_the_tracker_is_the_gradient_in_the_end():
    problem = quadratic()
    run = ff.loop(ff.TFocus(), problem, FULL, rounds=12, lr=0.02, local_steps=2)
    slope = run.metrics["grad_norm"][-1]
    assert tracker_norm(run.server, 6) == pytest.approx(slope, rel=0.2)
    assert tracker_norm(run.server, 6) == np.linalg.norm(run.server.gradient_sum) / 6


@pytest.mark.parametrize("option", [1, "1-up"])
def test_how_far_the_tracker_is_off_is_measured_where_the_server_is(option):
    w = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 0.25])
    problem = ff.problems.Quadratic(quadratic().H, quadratic().h, weights=w)
    who = ff.participation.Bernoulli(0.5)
    alg = ff.TScaffold(option=option)
    run = ff.simulate(alg, problem, who, rounds=60, lr=0.03, local_steps=2)
    assert tracking_gap(run) < 1e-13
    line = run.server.line._replace(rho=run.server.line.rho + 0.1)
    off = replace(run, server=run.server._replace(line=line))
    assert tracking_gap(off) > 1e-4


def test_a_model_of_two_dtypes_has_no_curvature_that_is_one_number():
    model = {"a": np.ones(2, "float32"), "b": np.ones(3)}
    with pytest.raises(ValueError, match="one dtype; got float32, float64"):
        ff.TFocus().init(model)


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="gamma is 1 with option '1-up'.*got 0.5"):
        ff.TScaffold(option="1-up", gamma=0.5)
    assert ff.TScaffold(option="1-up", gamma=1.0).cost == (2, 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_anchored_tracks_every_mean_gradient_and_where_it_was_pulled(weighted):
    w = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 0.25]) if weighted else np.ones(6)
    problem = ff.problems.Quadratic(quadratic().H, quadratic().h, weights=w)
    who = ff.participation.Replay(some_masks())
    spec = RunSpec(ff.AnchoredFocus(), problem, who, 40, [0.03], 3, np.ones(5), [0])
    for state, _ in states(spec.validated()):
        lines = [c.line for c in state.clients]
        for part in ("b", "rho"):
            own = np.array([getattr(line, part) for line in lines])
            assert gap(getattr(state.server.line, part), w @ own) < 1e-12


def test_anchors_lie_between_focus_with_mean_memory_and_finito():
    problem, lr, N = quadratic(), 0.05, 6
    masks = np.array([np.ones(N, bool), *some_masks()])
    who = ff.participation.Replay(masks)
    how = {
        "rounds": len(masks),
        "local_steps": 3,
        "lr": 0.05,
        "options": ff.Options(record_models=True),
    }
    loose = ff.loop(ff.AnchoredFocus(anchor=0.0), problem, who, **how)
    mean = ff.loop(ff.Focus(memory="mean"), problem, who, **how)
    assert gap(loose.trajectory, mean.trajectory) < 1e-13
    tight = ff.loop(ff.AnchoredFocus(anchor=1.0), problem, who, rounds=len(masks), lr=lr / N)
    some = [mask for mask in masks if mask.any()]
    assert gap(tight.x, one_at_a_time(problem, lr, some, True)) < 1e-13


def test_a_gradient_of_one_who_stays_away_moves_the_model_only_so_far():
    """By 1/anchor steps, where FOCUS goes on by one in every round."""
    H, h = np.full((2, 1, 1), 1e-9), np.array([[-1.0], [0.0]])  # slopes of 1 and 0
    problem, lr = ff.problems.Quadratic(H, h), 0.1
    masks = np.tile([False, True], (400, 1))
    masks[0] = True
    who = ff.participation.Replay(masks)

    def way(alg):
        return abs(float(ff.loop(alg, problem, who, rounds=400, lr=lr, x0=[0.0]).x[0]))

    assert way(ff.Focus(memory="mean")) == pytest.approx(400 * lr)
    # rho is anchor / (N lr), and the one who is there draws to where the model is.
    assert way(ff.AnchoredFocus(anchor=0.25)) == pytest.approx(2 * lr / 0.25)


def test_anchored_ends_at_the_optimum_at_any_schedule_of_steps():
    who = ff.participation.Bernoulli(np.linspace(0.2, 0.9, 6))
    falling = ff.schedules.Cosine(0.06, rounds=600, floor=0.5)
    run = ff.simulate(ff.AnchoredFocus(), quadratic(), who, rounds=900, lr=falling, local_steps=4)
    assert run.metrics["distance"][-1] < 1e-12

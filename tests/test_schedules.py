"""Step sizes that follow the round: in every engine, side by side, and kept apart."""

import numpy as np
import optax
import pytest
from helpers import bits, gap, loop, quadratic, simulate, some_masks, sweep

import focusfl as ff
from focusfl import schedules
from focusfl.simulation.divergence import RestWarning
from focusfl.simulation.step_sizes import tabled

LAW = ff.participation.Replay(some_masks(rounds=60, p=0.6))
RUN = {"rounds": 60, "local_steps": 2, "record_models": True}
COSINE = schedules.Cosine(0.1, rounds=80, warmup=7, floor=0.05)
OF_OPTAX = [
    (schedules.Constant(0.3), optax.constant_schedule(0.3)),
    (
        COSINE,
        optax.warmup_cosine_decay_schedule(0.1 / 8, 0.1, 7, 80, end_value=0.1 * 0.05),
    ),
    (
        schedules.Cosine(0.2, rounds=50),
        optax.cosine_decay_schedule(0.2, 50),
    ),
    (
        schedules.Steps(0.2, [10, 30], factor=0.3),
        optax.piecewise_constant_schedule(0.2, {10: 0.3, 30: 0.3}),
    ),
    (
        schedules.Exponential(0.2, rate=0.5, every=10, floor=0.1),
        optax.exponential_decay(0.2, 10, 0.5, end_value=0.02),
    ),
    (
        schedules.Exponential(0.2, rate=0.5, every=10, staircase=True),
        optax.exponential_decay(0.2, 10, 0.5, staircase=True),
    ),
    (
        schedules.Polynomial(0.2, rounds=70, power=2.0, floor=0.1),
        optax.polynomial_schedule(0.2, 0.02, 2.0, 70),
    ),
]


@pytest.mark.parametrize("ours, theirs", OF_OPTAX, ids=lambda v: type(v).__name__)
def test_schedules_are_those_of_optax(ours, theirs):
    last = 50 if isinstance(ours, schedules.Cosine) and not ours.floor else 100
    a, b = (tabled(one, last).steps for one in (ours, theirs))
    assert np.max(np.abs(a - b) / b) < 1e-12
    assert eval(repr(ours), vars(schedules)) == ours and hash(ours) == hash(ours)


def test_an_inverse_root_is_one():
    steps = tabled(schedules.InverseSqrt(0.2, every=4.0), 50).steps
    assert gap(steps, 0.2 / np.sqrt(1 + np.arange(50) / 4)) < 1e-15


@pytest.mark.parametrize("alg", [ff.Focus(), ff.Scaffold(), ff.FedAdam()], ids=repr)
def test_both_engines_take_the_step_of_the_round(alg):
    slow, fast = (run(alg, quadratic(), LAW, lr=COSINE, **RUN) for run in (loop, simulate))
    assert gap(slow.trajectory, fast.trajectory) < 1e-12
    assert gap(slow.server, fast.server) < 1e-12
    assert slow.lr == fast.lr == 0.1 and fast.schedule == slow.schedule == repr(COSINE)
    assert "lr of up to 0.1" in repr(fast)


def test_gradient_descent_by_hand_takes_the_same_steps():
    problem, x = quadratic(), np.zeros(5)
    for k in range(60):
        x = x - 0.1 / (1 + k) * (problem.H.mean(0) @ x - problem.h.mean(0))
    run = simulate(
        ff.FedAvg(),
        problem,
        ff.participation.Full(),
        rounds=60,
        lr=lambda k: 0.1 / (1 + k),
    )
    assert gap(run.x, x) < 1e-14


def test_optax_schedules_need_nothing_and_are_asked_in_float64():
    theirs = optax.cosine_decay_schedule(0.1, 100)
    ours = schedules.Cosine(0.1, rounds=100)
    a, b = (simulate(ff.Focus(), quadratic(), LAW, lr=lr, **RUN) for lr in (theirs, ours))
    assert gap(a.trajectory, b.trajectory) < 1e-13


def test_numbers_and_schedules_run_side_by_side():
    lrs = [0.05, COSINE, lambda k: 0.1 if k < 30 else 0.01]
    both = sweep(ff.Focus(), quadratic(), LAW, lrs=lrs, seed=[0, 1], **RUN)
    assert [run.lr for run in both] == 2 * [0.05, 0.1, 0.1]
    for run, lr in zip(both, lrs * 2, strict=True):
        alone = loop(ff.Focus(), quadratic(), LAW, lr=lr, **RUN)
        assert gap(run.trajectory, alone.trajectory) < 1e-12


def test_a_number_gives_the_same_bits_before_and_after_a_schedule():

    def run(lr):
        return simulate(ff.Focus(), quadratic(), ff.participation.Full(), lr=lr, rounds=60)

    first = run(0.05)
    run(COSINE)
    assert bits(run(0.05)) == bits(first)
    assert gap(run(lambda k: 0.05).x, first.x) < 1e-14


def test_a_checkpoint_of_other_steps_is_refused(tmp_path):
    def run(lr):
        return simulate(ff.Focus(), quadratic(), LAW, lr=lr, checkpoint=tmp_path, **RUN)

    first = run(COSINE)
    assert bits(run(lambda k: COSINE(k))) | {"['schedule']": 0} == bits(first) | {
        "['schedule']": 0
    }  # by its values, whatever it is called
    for other in (schedules.Cosine(0.1, rounds=81, warmup=7, floor=0.05), 0.1):
        with pytest.raises(ValueError, match="another run: lr was steps #"):
            run(other)


def test_a_warning_looks_at_the_largest_step_that_was_used():
    problem = quadratic()
    top = 2 / problem.L
    run = {"rounds": 40, "local_steps": 2, "on_divergence": "ignore"}
    rising = schedules.Polynomial(0.4 / problem.L, rounds=40, floor=1.0)
    full = ff.participation.Full()
    with pytest.warns(RestWarning, match=r"lr \* L = 2.00"):
        simulate(
            ff.Scaffold(),
            problem,
            full,
            lr=lambda k: top if k == 3 else top / 50,
            **run,
        )
    simulate(ff.Scaffold(), problem, full, lr=rising, **run)  # says nothing


def test_a_result_keeps_its_schedule(tmp_path):
    run = simulate(ff.Focus(), quadratic(), LAW, lr=COSINE, rounds=60)
    again = ff.Result.load(run.save(tmp_path / "run.safetensors"))
    assert again.schedule == repr(COSINE) and again.lr == run.lr


WRONG = [
    (lambda k: 0.0, "it is 0.0 in round 0"),
    (
        lambda k: 0.1 - 0.01 * k,
        "positive and finite in every round; it is 0.0 in round 10",
    ),
    (lambda k: -1.0, "it is -1.0 in round 0"),
    (lambda k: np.nan if k == 7 else 0.1, "it is nan in round 7"),
    (lambda k: np.inf, "it is inf in round 0"),
    (lambda k: np.ones(3), r"one number; it gave an array of shape \(3,\) in round 0"),
    (lambda k: "fast", "in round 0 it raised ValueError"),
    (lambda k: None, "in round 0 it raised TypeError"),
    (lambda k: True, "must give one number; it gave True in round 0"),
    (lambda k: [0.1][k], "in round 1 it raised IndexError: list index out of range"),
    (lambda: 0.1, "in round 0 it raised TypeError"),
    (schedules.Cosine(0.1, rounds=20), "it is 0.0 in round 20"),
    (schedules.Cosine, "got <class .*Cosine'>; call it"),
]


@pytest.mark.parametrize("lr, words", WRONG)
def test_a_schedule_that_cannot_be_is_refused_by_its_round(lr, words):
    for run in (simulate, loop):
        with pytest.raises(ValueError, match=words) as told:
            run(ff.Focus(), quadratic(), LAW, rounds=60, lr=lr)
        assert "\n" not in str(told.value)


def test_theory_of_a_constant_step_refuses_a_schedule():
    how = {"lr": COSINE, "local_steps": 2}
    for ask in (
        lambda: ff.theory.predict(ff.Focus(), quadratic(), LAW, **how),
        lambda: ff.theory.fedavg_limit(quadratic(), LAW, **how),
        lambda: ff.theory.report(quadratic(), LAW, **how),
    ):
        with pytest.raises(ValueError, match="lr must be positive and finite; got Cos"):
            ask()


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda: schedules.Cosine(0.1, rounds=10, warmup=10), "warmup must be below"),
        (lambda: schedules.Steps(0.1, 5), "at must be a list of rounds.*got 5"),
        (lambda: schedules.Steps(0.1, [0, 5]), "each at least 1"),
        (lambda: schedules.Exponential(0.1, rate=2.0), "rate must lie in"),
    ],
)
def test_what_no_schedule_can_be_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()

"""Clients one after the other, as those with large models work on a CPU."""

import jax
import numpy as np
import pytest
from helpers import (
    ALL,
    Diary,
    Told,
    gap,
    loop,
    quadratic,
    same,
    simulate,
    some_masks,
    sweep,
    walked,
)

import focusfl as ff
from focusfl.core import tree
from focusfl.simulation import plan as layout
from focusfl.simulation import round as one_round

# Hessians are made diagonal.
HOW = {"rounds": 40, "lr": 0.03, "local_steps": 4, "on_divergence": "ignore"}


@pytest.fixture(scope="module", autouse=True)
def in_turn():
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_round, "take_turns", lambda x: True)
        patch.setattr(layout, "SPARE", 0)
        yield
    jax.clear_caches()


# Few: participants have the first slots. Many: everybody has their own, some empty; who
# has which is nothing an algorithm knows.
@pytest.mark.parametrize(
    "alg, p, slots",
    [
        *((alg, 0.2, 3) for alg in [*ALL, Diary(), Told()]),
        *((alg, 0.8, 6) for alg in [ff.Focus(warm_start=True), ff.FedAU(), Diary()]),
    ],
    ids=repr,
)
def test_turns_give_the_run_of_the_loop(alg, p, slots):
    masks = some_masks(p=p)
    assert layout.cohort_sizes(masks.sum(1), 6) == (slots,)
    problem, who = quadratic(), ff.participation.Replay(masks)
    slow, fast = (run(alg, problem, who, **HOW) for run in (loop, simulate))
    size = 1 + np.abs(slow.x).max()
    assert slow.diverged_at == fast.diverged_at
    assert gap(slow.server, fast.server) < 1e-12 * size
    if slow.diverged_at is None:
        assert gap(slow.clients, fast.clients) < 1e-10 * size


def test_turns_walk_the_same_batches():
    who = ff.participation.Bernoulli(0.3)
    slow, fast = (run(ff.Focus(), walked(dtype="float64"), who, **HOW) for run in (loop, simulate))
    assert gap(slow.server, fast.server) < 1e-12


def test_turns_of_runs_side_by_side_are_those_of_each():
    lrs, seeds = [0.01, 0.03], [3, 4]
    how = {"rounds": 40, "local_steps": 4}
    what = ff.Focus(), quadratic(), ff.participation.Bernoulli(0.4)
    found = sweep(*what, lrs=lrs, seed=seeds, **how)
    alone = [simulate(*what, lr=lr, seed=seed, **how) for seed in seeds for lr in lrs]
    for one, other in zip(found, alone, strict=True):
        assert gap(one.server, other.server) < 1e-12


@pytest.mark.parametrize("where", ["host", "disk"])
def test_where_memory_is_does_not_change_the_bits(where, tmp_path):
    what = ff.Focus(), quadratic(), ff.participation.Bernoulli(0.4)
    on_device, elsewhere = (
        simulate(*what, **HOW, client_state=place, state_folder=tmp_path)
        for place in ("device", where)
    )
    assert same(on_device.server, elsewhere.server)
    assert gap(on_device.clients, tree.map(np.asarray, elsewhere.clients)) < 1e-12

"""Algorithms whose pushes go through a compressor: laws, ends and bytes."""

import numpy as np
import pytest
from helpers import Nested, gap, quadratic, same, some_masks

import focusfl as ff
from focusfl import Chain, Compressed, FixedPoint, LowRank, Quantize, RandomK, TopK
from focusfl.core import Round, tree
from focusfl.studies import spec
from focusfl.studies.summary import tracking_gap
from focusfl.theory import predict

LAW = ff.participation.Replay(some_masks(rounds=30, p=0.6))
COINS = ff.participation.Bernoulli([0.2, 0.9, 0.4, 0.7, 0.3, 0.6])
PLAIN = {"rounds": 30, "lr": 0.05, "local_steps": 3}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("memory", ["last", "mean"])
def test_the_tracker_is_the_sum_of_what_was_sent(memory, warm):
    """y = sum of (grad - e), whatever the compressor; without e it is not."""
    alg = Compressed(ff.Focus(warm, memory), Quantize(2))
    run = ff.simulate(alg, quadratic(), LAW, **PLAIN)
    memory, unsent = run.clients.inner.grad, run.clients.unsent["y"]
    assert gap(run.server.y, (memory - unsent).sum(0)) < 1e-13
    assert gap(run.server.y, memory.sum(0)) > 1e-5
    assert tracking_gap(run) < 1e-14


def test_a_weighted_tracker_is_the_weighted_sum():
    problem = quadratic()
    weighted = ff.problems.Quadratic(problem.H, problem.h, weights=np.arange(1.0, 7))
    run = ff.simulate(Compressed(ff.Focus(), Quantize(4)), weighted, LAW, **PLAIN)
    assert tracking_gap(run) < 1e-14


def test_the_next_push_is_the_gradient_less_what_the_server_has():
    """EF21: u + e is measured from what was sent, not from what was computed."""
    alg, rd = Compressed(ff.Focus(), Quantize(2)), Round(0, 0.0, 1, 1, 1)
    server, client = alg.init(np.zeros(5))
    rng, has = np.random.default_rng(0), np.zeros(5)
    for index in range(5):
        grad, down = rng.standard_normal(5), alg.broadcast(server)
        local = alg.step(alg.pull(client, down), lambda x, _, g=grad: g, None, rd)
        client, up = alg.push(client, down, local, rd._replace(index=index))
        assert gap(up["y"], alg.compressor.approximate(grad - has, index, 0)) < 1e-14
        has = has + up["y"]
        server = alg.update(server, up, rd)
        assert same(server.y, has)  # to the bit


@pytest.mark.parametrize(
    "compressor",
    [
        Quantize(4, "stochastic"),
        Quantize(4, block=2),
        TopK(2),
        Chain(RandomK(2), Quantize(4)),
    ],
)
def test_engines_agree_where_they_would_turn_axes(compressor):
    """With three local steps a small quadratic is run in every client's eigenbasis: not
    so if it is coded, also inside another wrapper."""
    for alg in (
        Compressed(ff.Focus(), compressor),
        ff.ServerOpt(Compressed(ff.Focus(), compressor)),
    ):
        a, b = (
            run(alg, quadratic(), LAW, options=ff.Options(record_models=True), **PLAIN)
            for run in (ff.loop, ff.simulate)
        )
        assert gap(a.trajectory, b.trajectory) < 1e-12
        assert gap(a.clients, b.clients) < 1e-12


def test_engines_agree_on_nested_models_and_on_torch():
    torch = pytest.importorskip("torch")
    who = ff.participation.Replay(some_masks(rounds=8, num_clients=5, p=0.7))
    for compressor in (LowRank(1), Quantize(3, "stochastic"), Quantize(3, block=4)):
        alg = Compressed(ff.Scaffold(option=1), compressor)
        how = {"rounds": 8, "lr": 0.05, "local_steps": 2}
        a, b = (run(alg, Nested(), who, **how) for run in (ff.loop, ff.simulate))
        c = ff.loop(alg, Nested(), who, array=torch.asarray, **how)
        assert gap(a.x, b.x) < 1e-13 and gap(a.x, c.x) < 1e-13


def test_leaves_of_one_shape_draw_numbers_of_their_own():
    x = {"a": np.ones(50), "b": np.ones(50)}
    alg, rd = Compressed(ff.Focus(), RandomK(0.2)), Round(0, 0.1, 1, 1, 1)
    server, client = alg.init(x)
    down = alg.broadcast(server)
    local = alg.step(alg.pull(client, down), lambda x, _: x, None, rd)
    sent = alg.push(client, down, local, rd)[1]["y"]
    assert np.count_nonzero(sent["a"]) == np.count_nonzero(sent["b"]) == 10
    assert not np.array_equal(sent["a"], sent["b"])


@pytest.mark.parametrize(
    "alg, steps",
    [
        (ff.Focus(), 3),
        (ff.Focus(memory="last"), 3),
        (ff.Scaffold(), 3),
        (ff.Scaffold(option=1), 3),
        (ff.MIFA(), 1),
        (ff.FedVARP(), 1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("compressor", [Quantize(4), TopK(2)], ids=repr)
def test_exact_algorithms_stay_exact_under_unequal_coins(alg, steps, compressor):
    coded, problem = Compressed(alg, compressor), quadratic()
    how = {"rounds": 4000, "lr": 0.02, "local_steps": steps, "seed": 3}
    end = ff.simulate(coded, problem, COINS, eval_every=4000, **how)
    assert end.metrics["distance"][-1] < 1e-11
    told = predict(coded, problem, COINS, lr=0.02, local_steps=steps)
    assert told.bias == 0 and told.rate is None


def test_no_more_is_promised_than_what_is_known():
    L, steps = 2.0, 3
    assert Compressed(ff.Focus(), Quantize()).max_exact_lr(L, steps) == 2 / L
    assert Compressed(ff.Focus(memory="last"), Quantize()).max_exact_lr(L, steps) == 1 / L
    assert Compressed(ff.ServerOpt(ff.Focus())).max_exact_lr(L, steps) == 2 / L
    assert Compressed(ff.MIFA()).max_exact_lr(L, steps) == 0
    assert Compressed(ff.Focus(), FixedPoint()).max_exact_lr(L, steps) == 0
    assert Compressed(ff.Scaffnew()).max_exact_lr(L, 1) == 0  # sends models, not differences
    with pytest.raises(ValueError, match="knows the dynamics of Focus only"):
        ff.simulate(Compressed(), quadratic(), COINS, rounds=2, lr="auto")


@pytest.mark.filterwarnings("ignore::focusfl.RestWarning")  # which says it
def test_fixed_point_ends_at_its_resolution():
    ends = [
        ff.simulate(
            Compressed(ff.Focus(), FixedPoint(32, fraction)), quadratic(), COINS,
            rounds=3000, eval_every=3000, lr=0.02, local_steps=2,
        ).metrics["distance"][-1]
        for fraction in (8, 18)
    ]  # fmt: skip
    assert 1e-4 < ends[0] < 1e-2 and 1e-7 < ends[1] < 1e-5


@pytest.mark.parametrize("run", [ff.loop, ff.simulate])
def test_bytes_and_vectors_follow_the_codec(run):
    alg = Compressed(ff.Focus(), Quantize(4))
    each = (5 * 4 + 64) / 8  # of five numbers, and a scale
    found = run(alg, quadratic(), LAW, **PLAIN).metrics
    plain = run(ff.Focus(), quadratic(), LAW, **PLAIN).metrics
    counts = LAW.masks.sum(1)
    assert plain["bytes_up"][1:].tolist() == (40 * counts).tolist()
    assert found["bytes_up"][1:] == pytest.approx(each * counts)
    assert found["up"][1:] == pytest.approx(each / 40 * counts)
    assert np.array_equal(found["down"], plain["down"])
    assert alg.traffic(np.zeros(5, "float32"))[1] == (5 * 4 + 32) / (5 * 32)
    less = run(alg, quadratic(), LAW, callbacks=ff.Stop(vectors=20), **PLAIN)
    sent = np.cumsum(less.metrics["up"] + less.metrics["down"])
    assert sent[-1] >= 20 > sent[-2]
    for budget in ({"bytes_up": 200}, {"bytes_up": 200, "vectors": 1e9}):
        less = run(alg, quadratic(), LAW, callbacks=ff.Stop(**budget), **PLAIN)
        sent = np.cumsum(less.metrics["bytes_up"])
        assert sent[-1] >= 200 > sent[-2]
    with pytest.raises(ValueError, match="bytes_up must be .*; got -1"):
        ff.Stop(bytes_up=-1)


@pytest.mark.parametrize(
    "compressor, words",
    [
        (TopK(6), r"k must not be above .* got k=6 for one of shape \(5,\)"),
        (Chain(RandomK(6)), r"k must not be above .* got k=6"),
        (LowRank(1), r"LowRank\(.*\) fits no array of this model, .* \(5,\)"),
    ],
)
@pytest.mark.parametrize("run", [ff.loop, ff.simulate])
def test_a_codec_that_does_not_fit_the_model_is_refused(run, compressor, words):
    with pytest.raises(ValueError, match=words) as refused:
        run(Compressed(ff.Focus(), compressor), quadratic(), LAW, **PLAIN)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: TopK(0), "k must be a share below 1 or a whole number of at least 1"),
        (lambda: RandomK(1.5), "k must be a share"),
        (lambda: Quantize(9), "bits must be a whole number from 2 to 8; got 9"),
        (lambda: Quantize(1), "bits must be a whole number from 2 to 8; got 1"),
        (lambda: Quantize(4, block=0), "block must be a whole number of at least 1"),
        (lambda: Quantize(4, block=True), "block must be a whole number of at least 1"),
        (lambda: Chain(TopK(), Quantize(block=8)), "one scale .* no block; got Quant"),
        (lambda: FixedPoint(54), "bits must be a whole number from 2 to 53"),
        (lambda: FixedPoint(8, 65), "fraction must be a whole number from 0 to 64"),
        (lambda: Chain(Quantize(), TopK()), "first must be a TopK or a RandomK"),
        (lambda: Chain(TopK(), LowRank()), "then must be a Quantize or a FixedPoint"),
        (lambda: Compressed(Compressed()), "inner must not hold a Compressed already"),
    ],
)
def test_what_makes_no_codec_is_said_in_one_line(make, words):
    with pytest.raises(ValueError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


STUDY = {
    "rounds": 5, "lr": 1e-3,
    "problem": {"kind": "ridge", "num_clients": 4, "dim": 6, "rows": 3},
    "participation": {"full": {}},
}  # fmt: skip


def test_a_study_says_codecs_as_tables():
    first, then = {"kind": "top_k", "k": 2}, {"kind": "quantize", "bits": 4}
    chain = {"kind": "chain", "first": first, "then": then}
    then = {**then, "block": 64}
    own = {"kind": "compressed", "inner": {"kind": "scaffold", "option": 1}}
    told = {
        "a": {**own, "compressor": then},
        "b": {**own, "compressor": chain},
        "compressed": {},
    }
    study = spec.parse({**STUDY, "algorithms": told}, "study")
    inner = ff.Scaffold(option=1)
    assert [spec.algorithm for spec in study.algorithms.values()] == [
        Compressed(inner, Quantize(4, block=64)),
        Compressed(inner, Chain(TopK(2), Quantize(4))), Compressed(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "compressor, words",
    [
        ({"kind": "quantize", "bits": 9}, "from 2 to 8; got 9"),
        ({"kind": "zip"}, "unknown kind: 'zip'"),
        ({"bits": 4}, "[algorithms.compressed.compressor] must name its kind: one of "),
        ({"kind": "chain", "first": {"kind": "quantize"}}, "first must be a TopK"),
    ],
)
def test_a_study_with_a_wrong_codec_is_refused_by_its_place(compressor, words):
    told = {"compressed": {"compressor": compressor}}
    with pytest.raises(ValueError, match=r"algorithms\.compressed\.compressor") as refused:
        spec.parse({**STUDY, "algorithms": told}, "study")
    assert words in str(refused.value)


def test_a_study_whose_model_a_codec_does_not_fit_is_refused_before_it_runs():
    told = {"compressed": {"compressor": {"kind": "top_k", "k": 50}}}
    words = r"\[algorithms\.compressed\]: k must not be above .* got k=50 for .* \(6,\)"
    with pytest.raises(ValueError, match=words):
        spec.parse({**STUDY, "algorithms": told}, "study")


def test_states_are_trees_of_arrays_that_can_be_kept():
    """Memory of a client: what the inner one keeps, and as much as it sends."""
    _, client = Compressed(ff.Scaffold(option=1)).init(Nested().x0)
    assert tree.size(client) == 3 * tree.size(Nested().x0)
    _, line = Compressed(ff.TFocus()).init(np.zeros(5))
    assert set(line.unsent) == {"b"}  # and not its curvature, a number

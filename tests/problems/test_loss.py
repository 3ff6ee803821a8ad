"""Problems made of any jax loss: batches, streams, evaluation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import gap

import focusfl as ff
from focusfl import participation as who
from focusfl.core import Batch


def softmax_loss(params, samples):
    scores = samples["x"] @ params["w"] + params["b"]
    picked = jnp.take_along_axis(scores, samples["y"][:, None], 1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - picked


def softmax_metrics(params, samples):
    scores = samples["x"] @ params["w"] + params["b"]
    right = (scores.argmax(1) == samples["y"]).mean()
    return {"accuracy": right, "loss": softmax_loss(params, samples).mean()}


def blobs(num_clients=6, seed=0, dtype="float32", **changes):
    """Three classes; each client holds mostly one of them, and 20 to 40 samples."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.standard_normal((3, 4))

    def draw(n, favourite):
        y = np.where(rng.random(n) < 0.8, favourite, rng.integers(3, size=n))
        x = centres[y] + rng.standard_normal((n, 4))
        return {"x": x.astype(dtype), "y": y.astype(np.int32)}

    clients = [draw(20 + 4 * i, i % 3) for i in range(num_clients)]
    params = {"w": np.zeros((4, 3)), "b": np.zeros(3)}
    options = {
        "batch_size": 8, "eval_data": draw(300, 1), "metrics_fn": softmax_metrics,
        "dtype": dtype, **changes,
    }  # fmt: skip
    return ff.problems.from_loss(softmax_loss, params, clients, **options)


@pytest.mark.parametrize("stream", ["epochs", "fixed_order"])
def test_an_epoch_meets_every_sample_once_and_pads_nothing(stream):
    objective = blobs(stream=stream).objective
    key = jax.random.key(0)
    orders = []
    for epoch in range(2):
        met = []
        for turn in range(3):  # 20 samples in batches of 8, 8 and 4
            batch = Batch(key, 3 * epoch + turn)
            places, weights = map(np.asarray, objective.pick(batch, 20))
            assert weights[weights > 0] == pytest.approx(3 / 20)  # in every batch
            met += places[weights > 0].tolist()
        assert sorted(met) == list(range(20))
        orders.append(met)
    assert (orders[0] == orders[1]) == (stream == "fixed_order")


@pytest.mark.parametrize("stream", ["epochs", "fixed_order"])
def test_a_client_with_less_than_a_batch_takes_all_that_it_has(stream):
    """Its gradient is the mean over its samples, in both engines."""
    problem = blobs(batch_size=32, stream=stream)  # the clients have 20 to 40 samples
    whole = blobs(batch_size=None)
    batch = Batch(ff.core.random.stream(0), 0)
    for client, all_of_them in [(0, True), (5, False)]:
        data = jax.tree.map(lambda leaf, i=client: leaf[i], problem.data)
        one, other = (p.objective.grad(p.x0, data, batch) for p in (problem, whole))
        assert (gap(one["w"], other["w"]) < 1e-6) == all_of_them
    how = {"rounds": 5, "lr": 0.1, "local_steps": 3}
    fast, slow = (
        run(ff.Focus(), problem, who.Bernoulli(0.5), **how) for run in (ff.simulate, ff.loop)
    )
    assert gap(fast.x["w"], slow.x["w"]) < 1e-6


def test_with_replacement_draws_from_the_clients_own():
    objective = blobs(stream="with_replacement").objective
    places = np.concatenate([objective.pick(Batch(jax.random.key(0), n), 20)[0] for n in range(50)])
    assert set(places.tolist()) == set(range(20))


def test_a_batch_is_weighted_as_exactly_as_the_model_is_kept():
    objective = blobs(dtype="float64").objective
    with jax.enable_x64(True):
        batch = Batch(jax.random.key(0), jax.numpy.int32(0))
        _, weights = map(np.asarray, objective.pick(batch, jax.numpy.int32(20)))
    assert weights.dtype == "float64" and abs(weights[0] - 3 / 20) < 1e-16


def test_the_cursor_outlives_the_round():
    """One step a round, or all in one round: the same batches in the same order."""
    one, many = (
        ff.simulate(
            ff.FedAvg(), blobs(num_clients=1), who.Full(), rounds=rounds, lr=0.1,
            local_steps=steps,
        )
        for rounds, steps in [(1, 12), (12, 1)]
    )  # fmt: skip
    assert gap(one.x, many.x) < 1e-6


@pytest.mark.parametrize("alg", [ff.Focus(), ff.Scaffold(), ff.MIFA()], ids=repr)
def test_both_engines_train_alike(alg):
    slow, fast = (
        run(alg, blobs(dtype="float64"), who.Uniform(3), rounds=10, lr=0.02,
            local_steps=3)
        for run in (ff.loop, ff.simulate)
    )  # fmt: skip
    assert gap(slow.x, fast.x) < 1e-12


def test_sg_focus_learns_what_everybody_knows():
    result = ff.simulate(
        ff.Focus(), blobs(), who.Bernoulli(np.linspace(0.2, 0.9, 6)), rounds=400,
        lr=0.01, local_steps=3, eval_every=50,
    )  # fmt: skip
    accuracy = result.metrics["accuracy"]
    assert accuracy[-1] > 0.9 > accuracy[0]
    assert result.x["w"].dtype == "float32"
    assert len(accuracy) == 401
    assert result.evaluated.tolist() == list(range(0, 401, 50))
    tracked = jax.tree.map(lambda g: g.sum(0), result.clients.grad)
    assert gap(result.server.y, tracked) < 1e-4


def test_evaluating_less_often_changes_nothing_else():
    often, seldom = (
        ff.simulate(
            ff.Focus(), blobs(), who.Uniform(3), rounds=30, lr=0.01, local_steps=3,
            eval_every=every,
        )
        for every in (1, 10)
    )  # fmt: skip
    assert gap(often.x, seldom.x) == 0
    for name in ("loss", "accuracy"):
        assert np.allclose(often.metrics[name][::10], seldom.metrics[name][::10])


@pytest.mark.parametrize("run", [ff.loop, ff.simulate])
def test_divergence_between_evaluations_is_noticed(run):
    result = run(
        ff.FedAvg(),
        blobs(),
        who.Full(),
        rounds=40,
        lr=3e38,
        local_steps=8,
        eval_every=30,
        options=ff.Options(on_divergence="ignore"),
    )
    assert result.diverged_at is not None and result.diverged_at < 29
    assert np.isfinite(result.x["w"]).all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ({"stream": "epoch"}, "stream must be one of"),
        ({"num_clients": 0}, "at least one client"),
    ],
)
def test_bad_input_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        blobs(**change)


def flat(loss):
    return lambda params, samples: loss(softmax_loss(params, samples))


TWO = {"x": np.ones((9, 4)), "y": np.zeros(9, int)}


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"loss_fn": flat(jnp.mean)},
            r"loss of each sample, of shape \(8,\) for 8 samples of a batch; got shape "
            r"\(\). Leave mean or sum out",
        ),
        ({"loss_fn": flat(jnp.sum)}, "loss of each sample"),
        ({"loss_fn": flat(lambda v: v[:, None])}, r"got shape \(8, 1\)"),
        ({"loss_fn": flat(lambda v: (v, {}))}, "got tuple of 0"),
        ({"loss_fn": lambda p, s: s["z"]}, "loss_fn fails on a batch: KeyError: 'z'"),
        (
            {"metrics_fn": lambda p, s: {"each": softmax_loss(p, s)}},
            r"a single number for 'each'; got shape \(9,\)",
        ),
        ({"metrics_fn": flat(jnp.mean)}, r"dict of numbers by name; got shape \(\)"),
        (
            {"metrics_fn": lambda p, s: s["z"]},
            "metrics_fn fails on eval_data: KeyError",
        ),
        ({"augment": lambda k, s: {"x": s["x"]}}, "augment must keep names and shapes"),
        ({"client_data": [TWO, {**TWO, "z": TWO["y"]}]}, "client 1 .* got x, y, z"),
        (
            {"client_data": [TWO, {**TWO, "x": np.full((9, 4), np.nan)}]},
            r"client 1, data\['x'\] must be finite; got nan at row 0, column 0",
        ),
        ({"client_data": [{"x": [1, 2], "y": [0, 1]}]}, "Make an array of a list"),
        (
            {"eval_data": {**TWO, "x": np.full((9, 4), np.inf)}},
            r"eval_data\['x'\] must be finite",
        ),
        ({"params": {"w": np.full((4, 3), np.nan)}}, r"params\['w'\] must be finite"),
        ({"dtype": "float31"}, "dtype must be one of .* got 'float31'"),
        ({"dtype": "int32"}, "dtype must be one of"),
    ],
)
def test_what_would_train_another_model_is_refused(change, message):
    """By shape alone: nothing is computed, and nothing of the result changes."""
    given = {
        "loss_fn": softmax_loss, "params": {"w": np.zeros((4, 3)), "b": np.zeros(3)},
        "client_data": [TWO], "batch_size": 8, "eval_data": TWO, **change,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        ff.problems.from_loss(**given)


def test_a_model_of_pytorch_is_told_where_it_belongs():
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 3)
    for given in ((net, {"w": np.zeros(3)}), (softmax_loss, net)):
        with pytest.raises(ValueError, match="of PyTorch. Use focusfl.problems.from_torch"):
            ff.problems.from_loss(*given, [TWO], batch_size=8, eval_data=TWO)


def test_labels_outside_the_classes_do_not_pass_for_others():
    scores = jnp.array([[1.0, 2.0, 3.0]] * 3)
    losses = ff.problems.cross_entropy(scores, jnp.array([-1, 2, 3]))
    assert np.array_equal(np.isnan(losses), [True, False, True])
    for labels in (jnp.array([0.0, 1.0, 2.0]), jnp.zeros((3, 1), int)):
        with pytest.raises(ValueError, match="whole numbers, one per sample"):
            ff.problems.cross_entropy(scores, labels)


@pytest.mark.parametrize("wrong", [-1, 3])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_label_outside_the_classes_is_refused_with_its_place(wrong, batch_size):
    def loss(params, samples):
        return ff.problems.cross_entropy(samples["x"] @ params["w"], samples["y"])

    labels = np.zeros(9, int)
    labels[5] = wrong
    clients = [TWO, {**TWO, "y": labels}, TWO]
    given = {"batch_size": batch_size, "eval_data": TWO}
    with pytest.raises(ValueError, match="nan for sample 5 of client 1.*labels"):
        ff.problems.from_loss(loss, {"w": np.zeros((4, 3))}, clients, **given)
    labels[5] = 2
    ff.problems.from_loss(loss, {"w": np.zeros((4, 3))}, clients, **given)


def test_where_the_loss_is_nan_its_gradient_is():
    scores = jnp.array([[1.0, 2.0, 3.0]] * 3)

    def total(scores):
        return ff.problems.cross_entropy(scores, jnp.array([-1, 2, 3])).sum()

    lost = np.isnan(jax.grad(total)(scores))
    assert lost[0].all() and not lost[1].any() and lost[2].all()


def test_a_loss_that_takes_a_key_gets_one_for_gradients_alone():
    """Another in every step, and the same in every engine."""

    def noisy(params, samples, key=None):
        x = samples["x"]
        if key is not None:
            x = x + jax.random.normal(key, x.shape)
        return softmax_loss(params, {**samples, "x": x})

    options = {"batch_size": 8, "eval_data": TWO}
    params = {"w": np.zeros((4, 3)), "b": np.zeros(3)}
    noise, plain = (
        ff.problems.from_loss(loss, params, [TWO], **options) for loss in (noisy, softmax_loss)
    )
    setting = {"rounds": 3, "lr": 0.1, "local_steps": 2}
    fast, slow, still = (
        run(ff.FedAvg(), problem, ff.participation.Full(), **setting)
        for run, problem in (
            (ff.simulate, noise), (ff.loop, noise), (ff.simulate, plain),
        )
    )  # fmt: skip
    assert gap(fast.x, slow.x) < 1e-6 < 1e-3 < gap(fast.x, still.x)
    assert fast.metrics["loss"][0] == still.metrics["loss"][0]


def test_without_a_batch_size_a_gradient_is_of_all_data_of_clients_of_any_length():
    few = {name: leaf[:5] for name, leaf in TWO.items()}
    params = {"w": np.ones((4, 3)), "b": np.zeros(3)}
    problem = ff.problems.from_loss(
        softmax_loss, params, [TWO, few], batch_size=None, eval_data=TWO
    )
    for i, own in enumerate((TWO, few)):
        data = {"samples": {k: v[i] for k, v in problem.samples.items()}}
        data["length"] = problem.lengths[i]
        batch = ff.core.Batch(jax.random.key(0), 3)
        found = problem.objective.grad(problem.x0, data, batch)
        whole = jax.grad(lambda p, own=own: softmax_loss(p, own).mean())(problem.x0)
        assert gap(found, whole) < 1e-6


def test_a_class_that_was_not_called_is_named():
    class Loss:
        def __call__(self, params, samples):
            return softmax_loss(params, samples)

    samples = {"x": np.ones((4, 4)), "y": np.zeros(4, int)}
    with pytest.raises(ValueError, match=r"got the class Loss. Call it first: Loss\(\)"):
        ff.problems.from_loss(
            Loss, {"w": np.zeros((4, 3))}, [samples], batch_size=2, eval_data=samples
        )


def test_auto_chooses_a_step_for_any_algorithm_on_a_network():
    how = {"rounds": 60, "local_steps": 3, "eval_every": 60}
    problem, coins = blobs(), who.Bernoulli(0.5)
    for algorithm in (ff.Focus(), ff.FedAvg()):
        chosen = ff.simulate(algorithm, problem, coins, lr="auto", **how)
        assert chosen.lr == ff.theory.auto_lr(algorithm, problem, coins, 3).lr
        assert "steps from" in chosen.why_lr and "40 rounds" in chosen.why_lr
        assert chosen.metrics["loss"][-1] < 0.3 * chosen.metrics["loss"][0]


def test_auto_looks_at_no_sample_that_the_model_is_evaluated_on():
    rng = np.random.default_rng(5)
    other = {"x": rng.normal(size=(9, 4)), "y": np.zeros(9, np.int32)}
    one, two = (
        ff.theory.auto_lr(ff.Focus(), problem, who.Full(), 2)
        for problem in (blobs(), blobs(eval_data=other))
    )
    assert one == two


def test_a_step_that_makes_the_loss_rise_is_warned_of_and_others_are_not():
    how = {"rounds": 20, "local_steps": 3}
    with pytest.warns(ff.StepWarning, match=r"from 1.1 to .* at lr = 50.*Try lr = 0.1,"):
        ff.simulate(ff.Focus(), blobs(), who.Bernoulli(0.5), lr=50.0, **how)
    ff.simulate(ff.Focus(), blobs(), who.Bernoulli(0.5), lr=0.05, **how)


def test_a_step_at_which_nothing_is_learned_is_warned_of_if_only_the_end_is_looked_at():
    how = {"rounds": 40, "local_steps": 3, "eval_every": 40}
    with pytest.warns(ff.StepWarning, match="ended no better than it began"):
        ff.simulate(ff.Scaffold(), blobs(), who.Bernoulli(0.5), lr=50.0, **how)
    ff.simulate(ff.Scaffold(), blobs(), who.Bernoulli(0.5), lr=0.05, **how)


def test_advice_after_a_first_round_that_broke_is_a_step_that_gets_somewhere():
    problem = ff.problems.ridge(num_clients=16, dim=100, rows=100)
    how = {"rounds": 30, "local_steps": 5}
    with pytest.warns(ff.DivergenceWarning, match="in round 0 .* Try lr = 0.001 or below"):
        ff.simulate(ff.Focus(), problem, who.Full(), lr=0.1, **how)
    found = ff.simulate(ff.Focus(), problem, who.Full(), lr=0.001, **how)
    assert found.metrics["distance"][-1] < 1e-4


def test_advice_after_an_absurd_step_is_a_step_that_one_would_try():
    problem = ff.problems.random_quadratic(4, 3, seed=0)
    with pytest.warns(ff.DivergenceWarning, match="Try lr = 0.0[0-9]+ or below"):
        ff.simulate(ff.Focus(), problem, who.Full(), rounds=20, lr=1e6)

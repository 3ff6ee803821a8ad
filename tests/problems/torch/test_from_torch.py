"""A torch module is a problem like any other."""

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import gap
from torch import nn

import focusfl as ff
from focusfl.core.fingerprint import fingerprint
from focusfl.core.models import read_model
from focusfl.problems.torch.eager import Eager, EagerLoss, pick_samples

WHO = ff.participation.Bernoulli([0.9, 0.5, 0.5])
RUN = {"rounds": 6, "lr": 0.1, "local_steps": 2, "eval_every": 3, "seed": 3}
ENTROPY = nn.CrossEntropyLoss()


def draw(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=g)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0)


CLIENTS, EVAL_DATA = [draw(8 + 3 * i, i) for i in range(3)], draw(11, 9)


def mlp(*middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), *middle, nn.Linear(6, 3))


def make(module=None, loss=ENTROPY, clients=CLIENTS, **options):
    options = {"batch_size": 4, "eval_data": EVAL_DATA} | options
    return ff.problems.from_torch(module or mlp(), loss, clients, **options)


@pytest.fixture(scope="module")
def problem():
    return make()


class Net(nn.Module):
    """One line of computation after a layer."""

    def __init__(self, then, **layers):
        super().__init__()
        torch.manual_seed(0)  # some are made on import, whatever was drawn before
        self.layer, self.then = nn.Linear(4, 3), then
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.then(self, x)


def test_all_engines_give_the_same(problem):
    fast, slow = (run(ff.Focus(), problem, WHO, **RUN) for run in (ff.simulate, ff.loop))
    assert gap(fast.x, slow.x) < 1e-5
    setting = {name: value for name, value in RUN.items() if name != "lr"}
    many = ff.sweep(ff.Focus(), problem, WHO, lrs=[0.1, 0.2], **setting)
    assert gap(many[0].x, fast.x) < 1e-5


def test_without_a_batch_size_a_gradient_is_of_all_data_of_clients_of_any_length():
    module = mlp().double()
    whole, everybody = make(module, batch_size=None), ff.participation.Full()
    assert whole.dtype == "float64" and whole.x0["0.weight"].dtype == np.float64
    done = ff.simulate(ff.FedAvg(), whole, everybody, rounds=1, lr=0.5)
    losses = [ENTROPY(module(x.double()), y) for x, y in CLIENTS]
    (sum(losses) / 3).backward()
    for name, leaf in module.named_parameters():
        stepped = leaf.detach() - 0.5 * leaf.grad
        assert np.abs(done.x[name] - stepped.numpy()).max() < 1e-12


def test_a_loss_of_each_sample_is_as_good_as_a_mean(problem):
    each = make(loss=nn.CrossEntropyLoss(reduction="none"))
    batch = ff.core.Batch(jax.random.key(0), 0)
    data = ff.core.tree.map(lambda leaf: leaf[1], problem.data)
    grads = [p.objective.grad(p.x0, data, batch) for p in (problem, each)]
    assert gap(*grads) < 1e-6


def test_evaluation_is_that_of_pytorch_for_any_number_of_samples(problem):
    module = mlp().eval()
    for count in (1, 4, 11):
        x, y = draw(count, 7)
        samples = {"x": x.numpy(), "y": y.numpy()}
        ours = problem.mean_loss.loss_fn(problem.x0, samples).mean()
        assert float(ours) == pytest.approx(ENTROPY(module(x), y).item(), rel=1e-5)
    x, y = EVAL_DATA
    found = problem.objective.evaluate(problem.x0, problem.eval_data)
    right = (module(x).argmax(1) == y).double().mean().item()
    assert float(found["accuracy"]) == pytest.approx(right)


def test_metrics_of_a_user_are_evaluated_beside_the_loss():
    def metrics(out, y):
        return {"top2": (out.topk(2, 1)[1] == y[:, None]).any(1).float().mean()}

    made = make(metrics=metrics)
    found = made.objective.evaluate(made.x0, made.eval_data)
    out, y = mlp()(EVAL_DATA[0]), EVAL_DATA[1]
    assert set(found) == {"loss", "top2"}
    assert float(found["top2"]) == pytest.approx(metrics(out, y)["top2"].item())
    with pytest.raises(ValueError, match="metrics must give tensors.*Leave float"):
        make(metrics=lambda out, y: {"mean": float(out.mean())})
    with pytest.raises(ValueError, match="metrics must give single numbers"):
        make(metrics=lambda out, y: {"out": out})


def test_dropout_draws_by_the_seed_of_the_run_and_not_in_evaluation():
    made = make(mlp(nn.Dropout(0.5)))
    loss, data = made.mean_loss.loss_fn, ff.core.tree.map(lambda a: a[0], made.data)
    samples = ff.core.tree.map(lambda a: a[:4], data["samples"])

    def given(number):
        return loss(made.x0, samples, jax.random.key(number))

    assert (given(0) == given(0)).all() and (given(0) != given(1)).any()
    assert (loss(made.x0, samples) == loss(made.x0, samples)).all()
    fast, again, slow = (
        run(ff.Focus(), made, WHO, **RUN) for run in (ff.simulate, ff.simulate, ff.loop)
    )
    assert gap(fast.x, again.x) == 0 and gap(fast.x, slow.x) < 1e-5
    other = ff.simulate(ff.Focus(), made, WHO, **{**RUN, "seed": 4})
    assert gap(fast.x, other.x) > 1e-3


def test_dropout_drops_its_share_and_scales_the_rest():
    from focusfl.problems.torch.operators.random import RANDOM

    x, key = np.ones((200, 200), np.float32), jax.random.key(0)
    found, _ = RANDOM["native_dropout"](key, x, 0.3, True)
    assert float((found == 0).mean()) == pytest.approx(0.3, abs=0.02)
    assert float(found.mean()) == pytest.approx(1, abs=0.02)
    assert RANDOM["native_dropout"](None, x, 0.3, True)[0] is x


def test_noise_of_a_module_is_its_mean_in_evaluation():
    noisy = Net(lambda net, x: net.layer(x + torch.randn_like(x)))
    made = make(noisy)
    x, y = EVAL_DATA
    loss = made.objective.evaluate(made.x0, made.eval_data)["loss"]
    assert float(loss) == pytest.approx(ENTROPY(noisy.layer(x), y).item(), rel=1e-5)


def test_a_model_goes_back_to_pytorch_and_to_a_file(tmp_path):
    norm = nn.BatchNorm1d(6)
    norm.running_mean += 1
    module = mlp(norm, nn.Linear(6, 6))
    module[3].weight.requires_grad_(False)
    made = make(module, freeze_statistics=True)
    assert "3.weight" not in made.x0 and "3.bias" in made.x0
    done = ff.simulate(ff.Focus(), made, WHO, **RUN)
    trained = mlp(nn.BatchNorm1d(6), nn.Linear(6, 6))
    trained.load_state_dict(made.to_torch(done.x))
    x, y = EVAL_DATA
    loss = ENTROPY(trained.eval()(x), y).item()
    assert loss == pytest.approx(done.metrics["loss"][-1], rel=1e-5)
    assert (trained[2].running_mean == 1).all()
    with pytest.raises(ValueError, match="x must have the module's parameters, 0.w"):
        made.to_torch({"w": 0})
    load_file = pytest.importorskip("safetensors.torch").load_file
    loaded = load_file(done.save(tmp_path / "model.safetensors"))
    assert not trained.load_state_dict(loaded, strict=False).unexpected_keys
    assert gap(read_model(tmp_path / "model.safetensors"), done.x) == 0


def test_tied_parameters_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x).tanh())

    made = make(Tied())
    assert set(made.x0) == {"a.weight", "b.bias"}
    state = made.to_torch(ff.simulate(ff.Focus(), made, WHO, **RUN).x)
    assert state["b.weight"] is state["a.weight"]


def test_data_come_as_tensors_arrays_pairs_and_dicts_with_several_inputs(problem):
    named = [{"x": x.double().numpy(), "y": y.numpy()} for x, y in CLIENTS]
    assert gap(make(clients=named).samples, problem.samples) == 0
    both = [((x, x[:, :1]), (y, y)) for x, y in CLIENTS]

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, scale):
            return self.layer(x) * scale, x

    def loss(out, y):
        return F.cross_entropy(out[0], y[0]) + out[1].square().mean()

    made = make(Two(), loss, both, eval_data=None)
    assert len(made.eval_data["y"]["0"]) == sum(len(y) for _, y in CLIENTS)
    ff.simulate(ff.Focus(), made, WHO, **RUN)


def test_a_problem_has_a_name_by_its_content(problem):
    other = mlp()
    with torch.no_grad():
        other[0].weight += 1
    same, changed = make(), make(other)
    assert fingerprint(problem) == fingerprint(same) != fingerprint(changed)
    assert repr(problem.mean_loss.loss_fn) == "Sequential of PyTorch"


def test_half_precision_is_computed_in_and_the_model_kept_as_it_is():
    made = make(compute_dtype="bfloat16")
    done = ff.simulate(ff.Focus(), made, WHO, **RUN)
    assert done.x["0.weight"].dtype == np.float32
    loss = made.mean_loss.loss_fn
    lower = ff.core.tree.map(lambda a: a.astype("bfloat16"), made.x0)
    assert loss.outputs(lower, EVAL_DATA[0].numpy())[0].dtype == "bfloat16"


FFT = Net(lambda net, x: net.layer(torch.fft.fft(x).real))
BRANCH = Net(lambda net, x: net.layer(x) if x.sum() > 1e9 else -net.layer(x))
UNKNOWN = {"no translation of _fft_r2c": FFT, "branches on the values": BRANCH}


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_cannot_be_translated_runs_in_the_reference_engine(why):
    with pytest.warns(ff.problems.NotTranslated, match=f"{why}.*ff.loop"):
        made = make(UNKNOWN[why])
    with pytest.raises(ValueError, match=f"{why}.*use ff.loop"):
        ff.simulate(ff.Focus(), made, WHO, **RUN)
    done = ff.loop(ff.Focus(), made, WHO, **RUN)
    assert set(done.metrics) >= {"loss", "accuracy"}
    assert done.metrics["loss"][-1] < done.metrics["loss"][0]
    tensors = ff.loop(ff.Focus(), made, WHO, **RUN, array=torch.asarray)
    assert gap(tensors.x, done.x) < 1e-6
    for array in (np.asarray, torch.asarray):
        found = ff.loop(ff.Focus(), made, WHO, **SERVED, array=array)
        assert_served(made, found, UNKNOWN[why], CLIENTS)


SERVED = RUN | {"per_client": True}
TESTS = [draw(count, 20 + count) for count in (5, 3, 7)]


def assert_served(made, found, module, sets):
    """Every client's accuracy and loss are those that PyTorch finds."""
    module.load_state_dict(made.to_torch(found.x))
    for i, (x, y) in enumerate(sets):
        out = module.eval()(x)
        right = (out.argmax(1) == y).double().mean().item()
        assert found.clients_metrics["accuracy"][i] == pytest.approx(right)
        loss = F.cross_entropy(out, y).item()
        assert found.clients_metrics["loss"][i] == pytest.approx(loss, rel=1e-5)


def test_clients_are_served_as_pytorch_finds():
    def metrics(out, y):
        return {"accuracy": (out.argmax(1) == y).float().mean()}

    known, unknown = (make(client_eval_data=TESTS, metrics=own) for own in (None, metrics))
    assert set(known.client_eval_data) == {"samples", "owner", "counts"}  # of means
    assert set(unknown.client_eval_data) == {"sets", "place"}  # of who knows what
    for made in (known, unknown):
        found = ff.simulate(ff.Focus(), made, WHO, **SERVED)
        assert_served(made, found, mlp(), TESTS)
    with pytest.raises(ValueError, match="of 3 clients; got 2"):
        make(client_eval_data=TESTS[:2])


def test_pytorch_itself_gives_the_gradients_of_the_translation(problem):
    """With weights for a short batch too: the last of an epoch."""
    mean = problem.mean_loss
    eager = EagerLoss(Eager(mlp(), ENTROPY), None, mean.batch_size, mean.stream)
    data = ff.core.tree.map(lambda leaf: leaf[1], problem.data)
    for number in range(3):
        batch = ff.core.Batch(jax.random.key(0), number)
        ours = mean.grad(problem.x0, data, batch)
        assert gap(ours, eager.grad(problem.x0, data, batch)) < 1e-6


def test_a_gradient_that_export_does_not_see_is_refused():
    def half(net, x):
        with torch.no_grad():
            first = net.layer(x)
        return net.layer(x) * first

    with pytest.raises(ValueError, match="another gradient in jax.*no_grad"):
        make(Net(half))


def test_a_wrong_translation_is_refused(monkeypatch):
    from focusfl.problems.torch.operators import OPERATORS

    monkeypatch.setitem(OPERATORS, "tanh", lambda x: 1.001 * np.tanh(1) * x)
    with pytest.raises(ValueError, match="other outputs in jax, apart by"):
        make()


def test_clients_with_different_classes_do_not_hide_a_weighted_mean():
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 9.0]))
    alone = [(x[y == i], y[y == i]) for i, (x, y) in enumerate([draw(40, 0)] * 3)]
    with pytest.raises(ValueError, match="samples weigh the same"):
        make(loss=weighted, clients=alone)


def counted(net, x):
    net.seen += 1
    return net.layer(x)


class Counts(Net):
    def __init__(self):
        super().__init__(counted)
        self.register_buffer("seen", torch.zeros(()))


WHOLE = nn.Linear(4, 3)
WHOLE.weight = nn.Parameter(torch.ones(3, 4, dtype=torch.long), requires_grad=False)
MIXED = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3).double())
BAD = {
    "module must be a torch.nn.Module": {"module": F.relu},
    "0.weight must be of float32 or float64; got float16": {"module": mlp().half()},
    "weight must be of float32 or float64; got int64": {"module": WHOLE},
    "parameters must be of one type": {"module": MIXED},
    "a parameter with requires_grad; got none": {"module": nn.Tanh()},
    r"2 \(BatchNorm1d\) keeps running statistics.*GroupNorm.*freeze_statistics": {
        "module": mlp(nn.BatchNorm1d(6))},
    "samples must not see each other": {
        "module": mlp(nn.BatchNorm1d(6, track_running_stats=False))},
    "it changes seen": {"module": Counts()},
    r"module fails on samples of shape \(33, 4\): RuntimeError: mat1": {
        "module": nn.Linear(5, 3)},
    "loss must be a function; got 5": {"loss": 5},
    r"loss must give one number.*got shape \(33, 3\)": {"loss": lambda out, y: out},
    "loss must give one number.*got 3.0": {"loss": lambda out, y: 3.0},
    "loss fails on samples": {"loss": lambda out, y: out + "a"},
    "loss must be a mean.*or a sum": {"loss": nn.CrossEntropyLoss(reduction="sum")},
    "client 0 must be .inputs, targets., or a dict of x and y; got z": {
        "clients": [{"z": 1}]},
    "client_data must be a list": {"clients": 5},
    "batch_size must be a whole number": {"batch_size": 0.5},
    "eval_data must have samples as clients have": {
        "eval_data": (torch.ones(3, 5),) * 2},
    "metrics must be a function": {"metrics": 5},
    "freeze_statistics must be true or false": {"freeze_statistics": "yes"},
    "stream must be one of": {"stream": "backwards"},
    "must be finite; got -inf": {"clients": [(CLIENTS[0][0] / 0, CLIENTS[0][1])]},
    "Target 9 is out of bounds; .* from 0, of client 0, to 9, of client 1": {
        "clients": [CLIENTS[0], (CLIENTS[1][0], CLIENTS[1][1] * 0 + 9)]},
    r"got the class CrossEntropyLoss. Call it first: CrossEntropyLoss\(\)": {
        "loss": nn.CrossEntropyLoss},
    "client_data must be .* DataLoader.* x, y = map.torch.cat, zip": {
        "clients": torch.utils.data.DataLoader(CLIENTS[0][0])},
    "client 1 must be arrays or tensors; got a DataLoader": {
        "clients": [CLIENTS[0], torch.utils.data.DataLoader(CLIENTS[0][0])]},
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_told_in_one_line(message):
    given = {"batch_size": 4, **BAD[message]}
    with pytest.raises(ValueError, match=message) as told:
        make(**given)
    assert "\n" not in str(told.value)


def test_samples_are_taken_from_all_over():
    samples = {"x": np.arange(10), "y": np.arange(10)}
    assert pick_samples(samples, 3)["x"].tolist() == [0, 4, 9]
    assert pick_samples(samples, 1)["y"].tolist() == [0]

"""Clients of every kind, and Flower's own way to play rounds."""

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from chaos import Lossy
from flwr.app import Array, ArrayRecord, Context, MetricRecord, RecordDict
from loopback import (
    FOCUS,
    PROBLEM,
    SITES,
    LatencyModel,
    Loopback,
    Node,
    events,
    job,
    reopened,
)

import focusfl as ff
from focusfl.flower import (
    AlgorithmStrategy,
    client_app,
)
from focusfl.flower.app import run
from focusfl.flower.ending import Unhealthy
from focusfl.flower.evaluation import Evaluation, metrics_of
from focusfl.flower.events import describe
from focusfl.flower.events import read as read_events
from focusfl.flower.identity import identify
from focusfl.problems import Objective, Problem, from_torch, torch_params
from focusfl.studies import store


@dataclass(frozen=True)
class Named(Objective):
    """The shared objective, its model in a dict, as strategies of Flower's have it."""

    def grad(self, x, data, batch):
        return {"x": PROBLEM.objective.grad(x["x"], data, batch)}

    def evaluate(self, x, eval_data):
        return PROBLEM.objective.evaluate(x["x"], eval_data)


class Flat(Problem):
    num_clients = 4
    objective = Named()
    data = PROBLEM.data
    eval_data = PROBLEM.eval_data
    x0 = {"x": PROBLEM.x0}


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 1).double()


def tables():
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((8, 3)), rng.standard_normal((8, 1))) for _ in SITES]


def squared(out, y):
    return ((out - y) ** 2).mean()


def test_a_torch_module_learns_what_its_own_arithmetic_would(tmp_path):
    """Against the optimum of the same least squares, solved at once."""
    data = tables()

    def work(context):
        x, y = map(torch.from_numpy, data[context.node_config["partition-id"]])
        return from_torch(linear(), squared, (x, y), client=context.node_config["partition-id"])

    app = client_app(work, FOCUS)
    nodes = {9 + i: Node(app, i, tmp_path / s, name=s) for i, s in enumerate(SITES)}
    this = job(tmp_path, rounds=60, lr=0.07, eval_every=60)
    run(Loopback(nodes), replace(this, params=torch_params(linear()), evaluate=None))
    A = np.concatenate([np.c_[x, np.ones(8)] for x, _ in data])
    y = np.concatenate([y for _, y in data])
    best = np.linalg.lstsq(A, y, rcond=None)[0][:, 0]
    with np.load(tmp_path / "server" / "test" / "model.npz") as model:
        found = np.r_[model["weight"][0], model["bias"]]
    assert np.abs(found - best).max() < 1e-6
    first, tested = events(tmp_path, "evaluation")
    assert (first["after"], tested["after"]) == (0, 60)
    assert tested["loss"] == pytest.approx(np.mean((A @ found - y[:, 0]) ** 2))


def test_batches_of_a_torch_client_walk_through_its_data():
    x = torch.arange(6, dtype=torch.float64)[:, None] + 1
    module = torch.nn.Linear(1, 1, bias=False).double()
    work = from_torch(module, lambda out, y: out.mean(), (x, x), batch_size=2, client=0)
    zero = {"weight": np.zeros((1, 1))}
    seen = [work.grad_fn(zero, work.batch_of(n))["weight"].item() for n in range(3)]
    assert 2 * sum(seen) == 21  # an epoch sees every sample once
    assert seen == [work.grad_fn(zero, work.batch_of(n))["weight"] for n in range(3)]


def test_a_loss_per_sample_and_data_that_are_not_finite_are_refused():
    x = torch.ones((6, 1))
    each = torch.nn.MSELoss(reduction="none")
    with pytest.raises(ValueError, match=r"the mean over a batch, .* shape \(2, 1\)"):
        from_torch(torch.nn.Linear(1, 1), each, (x, x), client=0)
    for name, given in {"inputs": (x / 0, x), "targets": (x, x / 0 * 0)}.items():
        with pytest.raises(ValueError, match=f"{name} must be finite"):
            from_torch(torch.nn.Linear(1, 1), squared, given, client=0)


def test_a_module_with_running_statistics_is_refused():
    norm = torch.nn.BatchNorm1d(3)
    with pytest.raises(ValueError, match="GroupNorm"):
        torch_params(norm)
    assert set(torch_params(norm, freeze_statistics=True)) == {"weight", "bias"}


def test_frozen_parameters_and_statistics_stay_as_they_are():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).double()
    net[0].weight.requires_grad_(False)
    x, y = map(torch.from_numpy, (np.eye(3), np.ones((3, 3))))
    work = from_torch(net, squared, (x, y), freeze_statistics=True, client=0)
    grad = work.grad_fn(torch_params(net, freeze_statistics=True), work.batch_of(0))
    assert set(grad) == {"0.bias", "1.weight", "1.bias"}
    assert net[1].num_batches_tracked == 0


def test_data_may_come_as_a_pair_as_a_dict_and_as_everybodys():
    x, y = map(torch.from_numpy, tables()[1])
    everybody = [tuple(map(torch.from_numpy, one)) for one in tables()]
    options = {"batch_size": 3, "client": 1, "metrics": lambda out, y: {"one": 1}}
    works = [
        from_torch(linear(), squared, given, **options)
        for given in ((x, y), {"x": x.numpy(), "y": y.numpy()}, everybody)
    ]
    x0 = torch_params(linear())
    grads = [work.grad_fn(x0, work.batch_of(4))["weight"] for work in works]
    assert all((grad == grads[0]).all() for grad in grads)
    assert len({tuple(work.evaluate(x0).items()) for work in works}) == 1


def test_a_site_says_who_it_is_in_three_ways(tmp_path):
    def who(**config):
        return identify(Context(1, 2, config, RecordDict(), {}))

    (tmp_path / "name").write_text("rome\n")
    assert who(site="paris", **{"partition-id": 3})[:2] == ("paris", 3)
    assert who(**{"site-file": str(tmp_path / "name")})[:2] == ("rome", None)
    assert who(**{"partition-id": 3}).site == "site-3"
    assert str(who(site="paris", state="/x").folder) == "/x"
    assert who(site="paris").folder.name == "paris"
    with pytest.raises(ValueError, match="which site it is"):
        who()


def test_a_strategy_plays_any_algorithm_though_replies_are_lost(tmp_path):
    app = client_app(Flat(), FOCUS)
    nodes = {9 + i: Node(app, i, tmp_path / s) for i, s in enumerate(SITES)}
    this = replace(job(tmp_path, patience=0.1), params={"x": PROBLEM.x0}, evaluate=None)
    arrays = ArrayRecord({"x": Array(PROBLEM.x0)})
    grid = Lossy(Loopback(nodes), drop=0.2, seed=1)
    evaluated = []
    result = AlgorithmStrategy(this).start(
        grid, arrays, num_rounds=60, timeout=0.1,
        evaluate_fn=lambda number, arrays: evaluated.append(number),
    )  # fmt: skip
    found = result.arrays["x"].numpy()
    assert np.linalg.norm(found - PROBLEM.optimum) < 1e-6
    counted = [m["counted"] for m in result.train_metrics_clientapp.values()]
    assert len(counted) == 60 and min(counted) < 4 and evaluated == [*range(61)]


def test_a_strategy_does_not_wait_in_every_round_for_who_is_away(tmp_path, monkeypatch):
    """One deadline for everybody to come; then rounds go on with who is there."""
    app = client_app(Flat(), FOCUS)
    nodes = {9 + i: Node(app, i, tmp_path / s) for i, s in enumerate(SITES)}
    away, clock = nodes.pop(9), LatencyModel()
    monkeypatch.setattr("focusfl.flower.server.time", clock)
    this = replace(job(tmp_path, deadline=60.0, poll=1.0), params={"x": PROBLEM.x0}, evaluate=None)

    def back(grid, round):
        if round == 15:
            nodes[9] = away

    result = AlgorithmStrategy(this).start(
        Loopback(nodes, back), ArrayRecord({"x": Array(PROBLEM.x0)}), num_rounds=30
    )
    assert 60 <= clock.now <= 62, "who is away was waited for again"
    counted = [m["counted"] for m in result.train_metrics_clientapp.values()]
    assert set(counted[:15]) == {3} and counted[-3:] == [4, 4, 4]


def strategy_run(folder, rounds=3, **more):
    """Have a strategy play rounds of a job on four sites."""
    this = replace(job(folder), params={"x": PROBLEM.x0}, evaluate=None, **more)
    app = client_app(Flat(), FOCUS)
    nodes = {9 + i: Node(app, i, folder / s) for i, s in enumerate(SITES)}
    start = ArrayRecord({"x": Array(PROBLEM.x0)})
    return AlgorithmStrategy(this).start(Loopback(nodes), start, num_rounds=rounds)


def test_a_strategy_counts_replies_that_come_after_its_timeout(tmp_path):
    app = client_app(Flat(), FOCUS)
    nodes = {9 + i: Node(app, i, tmp_path / s, delay=40) for i, s in enumerate(SITES)}
    this = replace(job(tmp_path), params={"x": PROBLEM.x0}, evaluate=None)
    start = ArrayRecord({"x": Array(PROBLEM.x0)})
    result = AlgorithmStrategy(this).start(Loopback(nodes), start, num_rounds=6, timeout=0.01)
    counted = [m["counted"] for m in result.train_metrics_clientapp.values()]
    assert len(counted) == 6 and 0 in counted and sum(counted) > 4


def test_a_strategy_fails_if_no_site_was_ever_counted(tmp_path, capsys):
    """A job whose name is not the config's: every site refuses every request."""
    with pytest.raises(Unhealthy, match="no site was counted.*not trained.*'other'"):
        strategy_run(tmp_path, job="other")
    said = capsys.readouterr().out
    assert said.count("nothing: site-0: ") == 3 and "'other'" in said
    for number in (1, 2, 3):
        assert f"warning: round {number} counted no site" in said
    found = read_events(tmp_path / "server" / "other")
    assert found[-1]["event"] == "end" and found[-1]["healthy"] is False


def test_a_strategy_leaves_what_a_server_app_leaves(tmp_path, capsys):
    result = strategy_run(tmp_path)
    assert "warning" not in capsys.readouterr().out
    found = read_events(tmp_path / "server" / "test")
    kinds = [event["event"] for event in found]
    assert kinds[0] == "begin" and kinds[-1] == "end" and kinds.count("round") == 3
    assert found[-1]["healthy"] and found[-1]["of"] == "all 4 sites"
    (kept,) = store.Study.load(tmp_path / "server" / "test").runs
    assert kept.row["rounds"] == 3
    with np.load(tmp_path / "server" / "test" / "model.npz") as model:
        assert (model["x"] == result.arrays["x"].numpy()).all()
    assert len(strategy_run(tmp_path).train_metrics_clientapp) == 3
    again = read_events(tmp_path / "server" / "test")[-1]
    assert again["round"] == 6 and again["healthy"], "a second start goes on"


def test_a_strategy_tells_of_a_site_that_fails_and_goes_on(tmp_path, capsys):
    def work(context):
        if context.node_config["partition-id"] == 2:
            raise OSError("no disk here")
        return lambda x, batch: {"x": x["x"]}

    app = client_app(work, FOCUS)
    nodes = {9 + i: Node(app, i, tmp_path / s) for i, s in enumerate(SITES)}
    this = replace(job(tmp_path), params={"x": PROBLEM.x0}, evaluate=None)
    start = ArrayRecord({"x": Array(PROBLEM.x0)})
    AlgorithmStrategy(this).start(Loopback(nodes), start, num_rounds=2)
    said = " ".join(capsys.readouterr().out.split())
    assert "nothing: site-2: error 2: OSError('no disk here')" in said
    assert "warning: site-2 never took part" in said


@pytest.mark.parametrize("library", ["jax", "jaxtyping", "torch", "matplotlib"])
def test_a_client_does_not_import(library):
    code = (
        "import warnings; warnings.simplefilter('ignore'); import sys; "
        "import focusfl.flower; "
        f"sys.exit({library!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_torch_client_needs_no_jax():
    code = (
        "import warnings; warnings.simplefilter('ignore'); import sys, torch; "
        "from focusfl.problems import from_torch; x = torch.ones(4, 2); "
        "net, loss = torch.nn.Linear(2, 2), torch.nn.MSELoss(); "
        "work = from_torch(net, loss, (x, x), client=0); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_study_of_numpy_costs_its_clients_no_jax(tmp_path):
    from focusfl.deploy import study

    file = tmp_path / "study.toml"
    file.write_text(
        'rounds = 3\nlr = 0.1\n[problem]\nkind = "ridge"\n'
        "[participation.full]\n[algorithms.focus]\n"
    )
    study.write(study.load(file, [], None, 3), tmp_path / study.FILE)
    code = (
        "import warnings; warnings.simplefilter('ignore'); import sys; "
        "from pathlib import Path; from focusfl.deploy.study import study_client; "
        f"study_client(Path({str(tmp_path)!r})); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_problem_needs_to_know_which_client_it_is(tmp_path):
    app = client_app(PROBLEM, FOCUS)
    node = Node(app, 7, tmp_path, name="site-0", site="site-0")
    grid = Loopback({1: node})
    with reopened(tmp_path) as protocol:
        del protocol
    this = replace(job(tmp_path, deadline=0.05), rounds=1)
    grid.before = lambda grid, round: (
        node.config.update({"partition-id": 0}) if len(grid.asked) else None
    )
    run(grid, this)
    assert "which of 4 clients" in events(tmp_path, "nothing")[0]["why"]


def test_the_apps_in_the_docs_learn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "deploy.md"
    (code,) = re.findall(r"```py\n(.*?)```", page.read_text(), re.S)
    names: dict = {}
    exec(compile(code, page.name, "exec"), names)
    grid = Loopback(
        {
            7 + i: Node(names["client"], None, tmp_path / site, name=site, site=site)
            for i, site in enumerate(names["SITES"])
        }
    )
    context = Context(1, 2, {}, RecordDict(), {"job": "test", "poll": 0.01})
    names["server"](grid, context)
    with np.load(tmp_path / "state" / "test" / "model.npz") as model:
        assert np.abs(model["x"] - 1).max() < 1e-3


@pytest.mark.parametrize(
    "said",
    [
        {"loss": [1.0, 2.0]},
        {"loss": float("nan")},
        {"loss": 1.0, "num-examples": 0},
        {"loss": 1.0, "num-examples": 1e308},
        {"loss": 1e308, "num-examples": 2},
        {"round": 1.0},  # a column of its own
        {"l\x1b[31moss": 1.0},
        {"l" * 101: 1.0},
    ],
    ids=ascii,
)
def test_an_evaluation_that_cannot_be_averaged_is_left_out(said, tmp_path):
    content = RecordDict({"metrics": MetricRecord(said)})
    test = Evaluation(job(tmp_path), 3, SITES, PROBLEM.x0)
    why = test.take("site-1", content)
    assert "site-1" not in test.awaited and not test.answered and not test.results()
    assert why.startswith("its evaluation is left out: ") and why.count("\n") == 0
    assert metrics_of(RecordDict()) == {}


ROUND = {
    "event": "round", "round": 9, "rounds": 60, "online": ["b", "a"], "eta": 65.4,
    "counted": ["b"], "missing": ["a"], "late": [], "metrics": {"distance": 0.00123},
    "seconds": 1.0,
}  # fmt: skip


def test_a_round_is_a_line_that_says_how_far_how_long_and_who_is_missing():
    first, *words, last = describe(ROUND).split("  ")
    assert (first, last) == ("round 10/60", "ETA 1:05")
    assert words == ["1 of 2 answered", "distance 0.00123", "without a"]
    many = {**ROUND, "missing": [f"site-{i}" for i in range(9)], "late": ["b"]}
    assert "1 of 10 answered" in describe(many) and "late b" in describe(many)
    assert describe({**ROUND, "eta": 7265.0}).endswith("ETA 2:01:05")
    assert describe({"event": "open", "round": 3}) == ""


@pytest.mark.parametrize("long", ["site", "metrics", "why", "names"])
def test_no_line_is_wider_than_80_columns_or_broken_within_a_number(long):
    name = "hospital-of-" + "x" * 60
    metrics = {f"metric-{i}": 1.23456789e-12 * i for i in range(12)}
    nothing = {"event": "nothing", "round": 3, "online": [], "site": "a"}
    event = {
        "site": {**ROUND, "missing": [name], "late": [name]},
        "metrics": {**ROUND, "metrics": metrics},
        "why": {**nothing, "why": "error 5: the node 1234567890 is not there " * 9},
        "names": {
            **nothing,
            "event": "end",
            "metrics": metrics,
            "warnings": [],
            "round": 60,
        },
    }[long]
    lines = describe(event).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 1 or event["event"] != "round"
    if event["event"] == "end":
        for key, value in metrics.items():
            assert f"{key} {value:.3g}" in describe(event)


def test_a_jax_model_draws_the_batches_that_simulate_draws(tmp_path):
    def loss(params, samples):
        return (samples["x"] @ params["w"] - samples["y"]) ** 2

    samples = [{"x": x, "y": y[:, 0]} for x, y in tables()]
    problem = ff.problems.from_loss(
        loss, {"w": np.zeros(3)}, samples, batch_size=3, eval_data=samples[0],
        dtype="float64",
    )  # fmt: skip
    app = client_app(problem, FOCUS, seed=5)
    nodes = {9 + i: Node(app, i, tmp_path / s, name=s) for i, s in enumerate(SITES)}
    this = replace(job(tmp_path, rounds=6, lr=0.02, local_steps=2), evaluate=None)
    run(Loopback(nodes), replace(this, params=problem.x0))
    expected = ff.simulate(
        FOCUS, problem, ff.participation.Full(), rounds=6, lr=0.02, local_steps=2,
        seed=5,
    )  # fmt: skip
    with np.load(tmp_path / "server" / "test" / "model.npz") as model:
        assert np.abs(model["w"] - expected.x["w"]).max() < 1e-12

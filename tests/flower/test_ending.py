"""How a deployment ends: the true gradient, who took part, and what it leaves."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from loopback import FOCUS, PROBLEM, SITES, Loopback, Node, events, job, nodes

import focusfl as ff
from focusfl.cli import main
from focusfl.flower import AlgorithmStrategy, Work, client_app, server_app
from focusfl.flower.app import run
from focusfl.studies import store


def one_label_each():
    """Four clients, of one label each: FOCUS has false fixed points at large steps."""
    A = np.random.default_rng(0).standard_normal((4, 20, 3)) + 1
    labels = np.repeat([1.0, 1.0, -1.0, -1.0], 20).reshape(4, 20)
    smooth = max(np.linalg.norm(a, 2) ** 2 / 80 + 0.01 for a in A)
    return ff.problems.Logistic(A, labels, penalty=0.01), smooth


def mean_gradient(problem, x, ids=range(4)):
    data = problem.data
    rows = [{name: leaf[i] for name, leaf in data.items()} for i in ids]
    return np.mean([problem.objective.grad(x, row, None) for row in rows], axis=0)


def ended(folder):
    (end,) = events(folder, "end")
    return end


def model(folder):
    with np.load(folder / "server" / "test" / "model.npz") as file:
        return dict(file)


@pytest.mark.parametrize("evaluates", ["server", "sites"])
@pytest.mark.parametrize(("step", "rounds", "false"), [(2.39, 40, True), (0.48, 60, False)])
def test_a_tracker_at_rest_is_told_from_a_gradient_at_rest(
    step, rounds, false, evaluates, tmp_path
):
    """The paper's memory: at eta*L = 2.39, y vanishes where the gradient is 0.91."""
    problem, smooth = one_label_each()
    focus = ff.Focus(memory="last")
    objective, eval_data = problem.objective, problem.eval_data
    this = replace(
        job(tmp_path, focus, rounds=rounds, lr=step / smooth, local_steps=5),
        params=problem.x0,
        evaluate=(lambda x: objective.evaluate(x, eval_data)) if evaluates == "server" else None,
    )
    run(Loopback(nodes(tmp_path, focus, work=problem)), this)
    end, true = ended(tmp_path), mean_gradient(problem, model(tmp_path)["x"])
    assert end["grad_norm"] == pytest.approx(np.linalg.norm(true), rel=1e-9)
    assert end["of"] == "all 4 sites"
    said = [w for w in end["warnings"] if "the tracker is at rest" in w]
    assert len(said) == len(events(tmp_path, "warning")) == int(false)
    if false:
        assert end["grad_norm"] > 0.9 and end["tracker_norm"] < 1e-4
        assert "lr is too large (eta*L near or above 1)" in said[0]
    else:
        assert end["tracker_norm"] < end["grad_norm"] < 1e-3
    (row,) = json.loads((this.place / "manifest.json").read_text())["runs"]
    for name in ("grad_norm", "tracker_norm"):
        assert row[name] == end[name]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_that_has_converged_is_not_warned_of(dtype, tmp_path):
    """Both norms are rounding: which of them is smaller means nothing."""
    target = np.linspace(-1, 1, 4).astype(dtype)

    def work(context):
        mine = target[context.node_config["partition-id"]]
        return lambda x, batch: x - mine

    this = job(tmp_path, rounds=40, lr=0.2)
    this = replace(this, params=np.full(5, 3, dtype), evaluate=None)
    run(Loopback(nodes(tmp_path, work=work)), this)
    end = ended(tmp_path)
    assert end["warnings"] == [] and end["grad_norm"] < 1e-5
    assert set(end["counted"].values()) == {40}


def test_two_of_three_sites_that_never_came_are_named(tmp_path, capsys):
    here = {100: nodes(tmp_path)[100]}
    sites = SITES[:3]
    run(Loopback(here), replace(job(tmp_path, rounds=6, deadline=0.2), sites=sites))
    (warning,) = events(tmp_path, "warning")
    assert "site-1, site-2 never took part" in warning["why"]
    assert "Rounds counted, of 6: site-0 6, site-1 0, site-2 0." in warning["why"]
    said = capsys.readouterr().out
    assert "warning: site-1, site-2 never took part" in said
    assert max(map(len, said.splitlines())) <= 80
    end = ended(tmp_path)
    assert end["counted"] == {"site-0": 6, "site-1": 0, "site-2": 0}
    assert not [w for w in end["warnings"] if "tracker" in w]


def test_the_gradient_says_whose_it_is_when_not_everybody_answers(tmp_path):
    here = nodes(tmp_path)
    here[103].delay = None  # never answers
    this = replace(job(tmp_path, rounds=5, target=3, deadline=0.3), evaluate=None)
    run(Loopback(here), this)
    end, x = ended(tmp_path), model(tmp_path)["x"]
    assert end["of"] == "3 of 4 sites (site-0, site-1, site-2)"
    true = np.linalg.norm(mean_gradient(PROBLEM, x, range(3)))
    assert end["grad_norm"] == pytest.approx(true, rel=1e-12)


def test_a_site_that_has_left_is_not_asked_and_not_missed(tmp_path):
    def leave(grid, round):
        if round == 5:
            grid.nodes[103].config["leave"] = True

    run(Loopback(nodes(tmp_path), leave), job(tmp_path, rounds=60))
    end, x = ended(tmp_path), model(tmp_path)["x"]
    assert end["warnings"] == []
    assert end["of"] == "3 of 4 sites (site-0, site-1, site-2)"
    true = np.linalg.norm(mean_gradient(PROBLEM, x, range(3)))
    assert end["grad_norm"] == pytest.approx(true, abs=1e-12) and true < 1e-8


@pytest.mark.parametrize(
    ("work", "of"),
    [
        (
            lambda context: Work(lambda x, batch: x, batch_of=lambda number: number),
            None,
        ),
        (lambda context: Work(lambda x, batch: x[:2]), None),  # not the model's shape
        (
            lambda context: Work(
                lambda x, batch: x, lambda number: number, gradient=lambda x: 2 * x
            ),
            "all 4 sites",
        ),
    ],
    ids=["batches alone", "another shape", "batches and all data"],
)
def test_a_gradient_that_sites_do_not_offer_is_not_made_up(work, of, tmp_path):
    here = nodes(tmp_path)
    trains = client_app(lambda x, batch: x, FOCUS)
    for node in here.values():
        tests = client_app(work, FOCUS)
        node.app = lambda m, c, tests=tests: (
            tests(m, c) if m.metadata.message_type == "evaluate" else trains(m, c)
        )
    this = replace(job(tmp_path, rounds=3), evaluate=None, params=np.ones(5))
    run(Loopback(here), this)
    end = ended(tmp_path)
    assert end.get("of") == of
    if of is None:
        assert "grad_norm" not in end
        (row,) = json.loads((this.place / "manifest.json").read_text())["runs"]
        assert row["verdict"] == "unclear" and row["grad_norm_of"] == "nobody"
    else:
        twice = 2 * np.linalg.norm(model(tmp_path)["x"])
        assert end["grad_norm"] == pytest.approx(twice)


def test_a_job_of_which_nothing_is_known_has_its_page_all_the_same(tmp_path):
    work = lambda context: Work(lambda x, batch: x, lambda number: number)  # noqa: E731
    here = nodes(tmp_path, ff.FedAvg(), work=work)
    this = replace(job(tmp_path, ff.FedAvg(), rounds=3), evaluate=None)
    run(Loopback(here), this)
    (run_,) = store.Study.load(this.place).runs
    assert run_.metrics == [] and run_.row["verdict"] == "unclear"
    assert main(["report", str(this.place), "-o", str(tmp_path / "page.html")]) == 0


def test_batches_of_a_jax_model_are_put_together_to_the_gradient_of_all_data(tmp_path):
    rng = np.random.default_rng(1)
    samples = [
        {"x": rng.standard_normal((n, 3)), "y": rng.standard_normal(n)} for n in (7, 8, 5, 6)
    ]
    problem = ff.problems.from_loss(
        lambda w, s: (s["x"] @ w["w"] - s["y"]) ** 2, {"w": np.zeros(3)}, samples,
        batch_size=3, eval_data=samples[0], dtype="float64",
    )  # fmt: skip
    this = replace(job(tmp_path, rounds=2, lr=0.01), params=problem.x0, evaluate=None)
    run(Loopback(nodes(tmp_path, work=problem)), this)
    w = model(tmp_path)["w"]
    each = [2 * s["x"].T @ (s["x"] @ w - s["y"]) / len(s["y"]) for s in samples]
    true = np.linalg.norm(np.mean(each, axis=0))
    assert ended(tmp_path)["grad_norm"] == pytest.approx(true, rel=1e-12)


def test_leaves_of_a_model_are_kept_under_names_that_differ(tmp_path):
    params = {
        "x": {"w": np.full(2, 1.0)}, "w": np.full(3, 2.0), "x/w": np.full(1, 3.0),
        "file": np.full(2, 4.0), "deep": {"w": {"w": np.full(2, 5.0)}},
    }  # fmt: skip
    app = client_app(lambda x, batch: x, FOCUS)
    here = {9 + i: Node(app, i, tmp_path / s) for i, s in enumerate(SITES)}
    run(
        Loopback(here),
        replace(job(tmp_path, rounds=1, lr=1e-9), params=params, evaluate=None),
    )
    found = model(tmp_path)
    names = {"x/w": 1, "w": 2, "x%2Fw": 3, "file": 4, "deep/w/w": 5}
    assert {name: round(leaf[0]) for name, leaf in found.items()} == names


@pytest.mark.parametrize("evaluates", ["server", "sites", "nobody"])
def test_a_job_leaves_what_a_study_does_and_the_same_page(evaluates, tmp_path, capsys):
    def work(context):
        i = context.node_config["partition-id"]
        whole = {name: leaf[i] for name, leaf in PROBLEM.data.items()}
        return Work(
            lambda x, batch: PROBLEM.objective.grad(x, whole, None),
            evaluate=lambda x: {"loss": 1.0 + float(x @ x), "num-examples": 3.0},
        )

    this = job(tmp_path, rounds=24, eval_every=5 * (evaluates == "sites"))
    if evaluates != "server":
        this = replace(this, evaluate=None)
    here = nodes(tmp_path, work=work)
    run(Loopback(here), this)
    found = store.Study.load(this.place)
    (run_,) = found.runs
    expected = {
        "server": (list(range(25)), ["distance", "loss", "grad_norm", "tracker_norm"]),
        "sites": ([0, 5, 10, 15, 20, 24], ["loss", "grad_norm", "tracker_norm"]),
        "nobody": ([0, 24], ["loss", "grad_norm", "tracker_norm"]),
    }[evaluates]
    assert (run_.curves["round"].tolist(), run_.metrics) == expected
    assert run_.curves["vectors_sent"][-1] == run_.row["vectors_sent"] == 24 * 4 * 2
    assert run_.row["rounds"] == 24 and run_.row["algorithm"] == "focus"
    assert run_.curves["grad_norm"][-1] == run_.row["grad_norm"]
    # The error falls by 0.175 a round: below 1e-8 in round 11, or when next looked at.
    first = {"server": 11, "sites": 15, "nobody": 24}[evaluates]
    assert run_.row["rounds_to_target"] == first
    assert (run_.row["rate"] is None) == (evaluates != "server")
    assert (np.diff(run_.curves["seconds"]) > 0).all()
    rounds, clients = found.participants["deployed"]
    assert len(rounds) == 24 * 4 and set(clients.tolist()) == {0, 1, 2, 3}
    assert found.manifest["scenarios"]["deployed"]["p"] == [1.0] * 4
    place, page = str(this.place), tmp_path / "report.html"
    assert main(["report", place, "-o", str(page)]) == 0
    assert main(["plot", place, "-o", str(tmp_path / "figure.png")]) == 0
    assert main(["export", place, "-o", str(tmp_path / "table.tex")]) == 0
    assert "deployed" in page.read_text() and "FOCUS" in page.read_text().upper()


def test_a_verdict_counts_rounds_and_not_evaluations(tmp_path):
    this = replace(job(tmp_path, rounds=80, eval_every=4, lr=0.01), evaluate=None)
    run(Loopback(nodes(tmp_path, work=PROBLEM)), this)
    (run_,) = store.Study.load(this.place).runs
    every, norms = run_.curves["round"], run_.curves["grad_norm"]
    assert len(every) == 21
    factor = (norms[-1] / norms[-6]) ** (1 / 20)  # a round; not an evaluation
    assert run_.row["verdict"] == "falling"
    told = float(re.search(r"factor (\.\d+) a round", run_.row["reason"])[1])
    assert told == pytest.approx(factor, abs=1e-3)
    assert run_.row["rate"] == pytest.approx(factor, abs=1e-2)


def test_a_job_that_was_killed_leaves_one_curve_of_all_its_lives(tmp_path):
    here = nodes(tmp_path)

    def die(grid, round):
        if round == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Loopback(here, die), job(tmp_path, rounds=12))
    run(Loopback(here), job(tmp_path, rounds=12))
    (run_,) = store.Study.load(tmp_path / "server" / "test").runs
    assert run_.curves["round"].tolist() == list(range(13))
    law = ff.participation.Full()
    expected = ff.simulate(FOCUS, PROBLEM, law, rounds=12, lr=0.2)
    assert np.allclose(run_.curves["distance"], expected.metrics["distance"], 1e-9)


def test_a_strategy_tells_the_gradient_where_it_evaluates(tmp_path):
    from flwr.app import Array, ArrayRecord

    data = PROBLEM.data

    def work(context):
        i = context.node_config["partition-id"]
        return lambda x, batch: {"x": data["H"][i] @ x["x"] - data["h"][i]}

    this = replace(job(tmp_path, eval_every=2), params=None, evaluate=None)
    result = AlgorithmStrategy(this).start(
        Loopback(nodes(tmp_path, work=work)), ArrayRecord({"x": Array(PROBLEM.x0)}),
        num_rounds=4,
    )  # fmt: skip
    found = result.evaluate_metrics_clientapp[4]["grad_norm"]
    true = mean_gradient(PROBLEM, result.arrays["x"].numpy())
    assert found == pytest.approx(np.linalg.norm(true), rel=1e-12)


def test_a_training_that_diverges_ends_and_says_so(tmp_path):
    """It went on for ever: sites refuse to push what is not finite."""
    this = job(tmp_path, rounds=400, lr=1e3)
    run(Loopback(nodes(tmp_path)), this)
    end = ended(tmp_path)
    assert end["round"] < 20
    (warning,) = end["warnings"]
    assert f"diverged in round {end['round']}; lower lr" in warning
    (run_,) = store.Study.load(this.place).runs
    assert (run_.row["verdict"], run_.row["rounds"]) == ("diverged", end["round"])
    assert main(["report", str(this.place), "-o", str(tmp_path / "page.html")]) == 0
    run(Loopback(nodes(tmp_path)), this)  # again: there is nothing to go on from
    assert len(events(tmp_path, "round")) == end["round"]


def test_an_app_that_cannot_begin_says_why_where_it_is_followed(tmp_path):
    from flwr.app import Context, RecordDict

    config = {"folder": str(tmp_path / "server"), "job": "test", "roundz": 3}
    context = Context(1, 2, {}, RecordDict(), config)
    with pytest.raises(ValueError, match="roundz"):
        server_app(job(tmp_path))(Loopback({}), context)
    (failed,) = events(tmp_path, "failed")
    assert "Did you mean 'rounds'" in failed["why"]

"""The round loop over a grid in this process: the apps and messages are Flower's own.

Real processes are in tests/deploy.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from chaos import Lossy
from flwr.app import RecordDict
from helpers import gap
from loopback import (
    FOCUS,
    PROBLEM,
    SITES,
    Loopback,
    Node,
    events,
    gap_of,
    job,
    nodes,
    reopened,
)

import focusfl as ff
from focusfl.flower import Work, client_app
from focusfl.flower.app import run
from focusfl.problems import Quadratic


@pytest.mark.parametrize("name", sorted(ff.ALGORITHMS))
def test_every_algorithm_over_flower_equals_the_loop(name, tmp_path):
    algorithm = ff.ALGORITHMS[name]()
    run(Loopback(nodes(tmp_path, algorithm)), job(tmp_path, algorithm, rounds=12))
    masks = np.zeros((12, 4), bool)
    for event in events(tmp_path, "round"):
        masks[event["round"], [SITES.index(site) for site in event["counted"]]] = True
    assert masks.all()
    expected = ff.loop(
        algorithm, PROBLEM, ff.participation.Replay(masks), rounds=12, lr=0.2,
    )  # fmt: skip
    with reopened(tmp_path, algorithm) as protocol:
        assert gap(protocol.x, expected.x) < 1e-12


def test_sites_that_count_differently_end_at_the_weighted_optimum(tmp_path):
    """And what sites and server say of the gradient is of the weighted mean."""
    weights = dict(zip(SITES, [0.1, 4.0, 1.0, 2.9], strict=True))
    uneven = Quadratic(PROBLEM.H, PROBLEM.h, weights=[*weights.values()])
    this = replace(job(tmp_path, rounds=4, weights=weights, lr=0.1), evaluate=None)
    run(Loopback(nodes(tmp_path)), this)
    (end,) = events(tmp_path, "end")
    with this.open_protocol() as protocol:
        found = uneven.objective.evaluate(protocol.x, uneven.eval_data)
        norm = np.linalg.norm(protocol.server.y) / 8
    assert end["grad_norm"] == pytest.approx(found["grad_norm"], rel=1e-9)
    assert end["tracker_norm"] == pytest.approx(norm, rel=1e-12)
    run(Loopback(nodes(tmp_path)), replace(this, rounds=80))
    with this.open_protocol() as protocol:
        assert gap(protocol.x, uneven.optimum) < 1e-12
    assert gap(PROBLEM.optimum, uneven.optimum) > 0.1


def test_a_straggler_three_rounds_behind_never_blocks_and_never_breaks(tmp_path):
    here = nodes(tmp_path)

    def slow(grid, round):
        # Site 0 answers after about three rounds of the others, which take 2 polls.
        grid.nodes[100].delay = 8 if round < 30 else 0

    run(Loopback(here, slow), job(tmp_path, rounds=60, target=3))
    rounds = events(tmp_path, "round")
    late = [event for event in rounds if "site-0" in event["late"]]
    without = [event for event in rounds[:30] if "site-0" not in event["counted"]]
    assert len(late) > 3 and len(without) > 15
    assert rounds[-1]["distance"] < 1e-12
    with reopened(tmp_path) as protocol:
        assert gap_of(protocol) < 1e-12


def test_a_site_that_returns_as_another_node_is_found_again(tmp_path):
    def move(grid, round):
        if round == 5 and 100 in grid.nodes:
            grid.nodes[100].delay = None  # dead, and Flower does not know it yet
        if round == 6:
            grid.nodes[777] = Node(client_app(PROBLEM, ff.Focus()), 0, tmp_path / "site-0")
        if round == 10:
            grid.nodes.pop(100, None)

    run(Loopback(nodes(tmp_path), move), job(tmp_path, rounds=40, deadline=0.5))
    counted = [event["counted"] for event in events(tmp_path, "round")]
    assert "site-0" not in counted[5] and "site-0" in counted[20]
    assert events(tmp_path, "end")[0]["distance"] < 1e-12
    with reopened(tmp_path) as protocol:
        assert gap_of(protocol) < 1e-12


def test_lost_late_and_double_replies_leave_it_exact(tmp_path):
    grid = Lossy(Loopback(nodes(tmp_path)), 0.2, 0.1, 0.1, seed=3)
    run(grid, job(tmp_path, rounds=50, deadline=0.2, patience=0.2))
    assert events(tmp_path, "nothing")
    assert events(tmp_path, "end")[0]["distance"] < 1e-7  # and falling: 50 rounds
    with reopened(tmp_path) as protocol:
        assert gap_of(protocol) < 1e-12


class Failing(Loopback):
    """A SuperLink that fails in the middle of every third call of a kind."""

    def __init__(self, nodes, every=3):
        super().__init__(nodes)
        self.calls, self.every = 0, every

    def push_messages(self, messages):
        return self.fail(super().push_messages(messages))

    def pull_messages(self, message_ids):
        return self.fail(super().pull_messages(message_ids))

    def fail(self, done):
        self.calls += 1
        if self.calls % self.every == 0:
            raise ConnectionError("the push session may have expired")
        return done


def test_a_superlink_that_fails_loses_messages_and_nothing_else(tmp_path):
    run(
        Failing(nodes(tmp_path)),
        job(tmp_path, rounds=50, deadline=0.2, patience=0.2),
    )
    assert events(tmp_path, "nothing")
    assert events(tmp_path, "end")[0]["distance"] < 1e-7
    with reopened(tmp_path) as protocol:
        assert gap_of(protocol) < 1e-12


def test_a_superlink_that_stays_away_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("focusfl.flower.link.OUTAGE", 0.3)
    with pytest.raises(ConnectionError, match="expired"):
        run(Failing(nodes(tmp_path), every=1), job(tmp_path))


def test_a_killed_server_app_goes_on_where_it_was(tmp_path):
    here = nodes(tmp_path)

    def die(grid, round):
        if round == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Loopback(here, die), job(tmp_path))
    run(Loopback(here), job(tmp_path))
    begun = [event["round"] for event in events(tmp_path, "begin")]
    assert begun == [0, 7]
    expected = ff.simulate(ff.Focus(), PROBLEM, ff.participation.Full(), rounds=30, lr=0.2)
    with reopened(tmp_path) as protocol:
        assert gap(protocol.x, expected.x) < 1e-12


def test_sites_that_lose_everything_are_sent_their_states(tmp_path):
    rounds = {5, 10}

    def wipe(grid, round):
        if round in rounds:
            rounds.remove(round)
            for node in grid.nodes.values() if round == 5 else [grid.nodes[102]]:
                node.state = RecordDict()

    run(Loopback(nodes(tmp_path), wipe), job(tmp_path, rounds=40))
    missing = [event["site"] for event in events(tmp_path, "missing")]
    assert sorted(missing) == sorted([*SITES, "site-2"])
    assert all(len(event["counted"]) == 4 for event in events(tmp_path, "round"))
    (end,) = events(tmp_path, "end")
    assert end["distance"] < 1e-12 and end["healthy"]
    with reopened(tmp_path) as protocol:
        assert protocol.generation == 1 and gap_of(protocol) < 1e-12


def test_a_server_that_lost_its_disk_begins_anew_with_sites_that_did_not(tmp_path):
    here = nodes(tmp_path)
    run(Loopback(here), job(tmp_path, rounds=5))
    shutil.rmtree(tmp_path / "server")
    run(Loopback(here), job(tmp_path, rounds=40))
    assert events(tmp_path, "end")[0]["distance"] < 1e-12
    with reopened(tmp_path) as protocol:
        assert protocol.generation == 1 and gap_of(protocol) < 1e-12


def test_a_site_of_which_nothing_can_count_is_left_out_and_named(tmp_path):
    here = nodes(tmp_path)

    def break_it(grid, round):
        if round == 5:
            grid.nodes[100].app = client_app(lambda x, batch: x + 1e16, FOCUS)

    run(Loopback(here, break_it), job(tmp_path, rounds=20))
    assert [event["site"] for event in events(tmp_path, "left out")] == ["site-0"]
    (end,) = events(tmp_path, "end")
    assert "site-0 was refused 5 times and left out" in end["warnings"][0]


def test_a_site_that_leaves_takes_its_gradients_along(tmp_path):
    def leave(grid, round):
        if round == 10:
            grid.nodes[103].config["leave"] = True

    run(Loopback(nodes(tmp_path), leave), job(tmp_path, rounds=40))
    rest = ff.problems.Quadratic(PROBLEM.H[:3], PROBLEM.h[:3])
    with reopened(tmp_path) as protocol:
        assert protocol.gone == ("site-3",)
        assert np.linalg.norm(protocol.x - rest.optimum) < 1e-10


def test_an_app_that_raises_does_not_hold_up_the_others(tmp_path):
    here = nodes(tmp_path)

    def broken(x, batch):
        raise ZeroDivisionError("no gradient today")

    here[100].app = client_app(broken, ff.Focus())
    run(Loopback(here), job(tmp_path, rounds=5))
    assert len(events(tmp_path, "nothing")) == 5
    assert "no gradient today" in events(tmp_path, "nothing")[0]["why"]
    assert all(len(event["counted"]) == 3 for event in events(tmp_path, "round"))


def test_a_site_whose_pushes_are_refused_is_asked_again(tmp_path):
    here = nodes(tmp_path)
    here[100].app = client_app(lambda x, batch: x + 1e9, FOCUS)

    def mend(grid, round):
        if round == 3:
            grid.nodes[100].app = grid.nodes[101].app

    run(Loopback(here, mend), job(tmp_path, rounds=30, max_norm=1e3))
    refused = events(tmp_path, "refused")
    assert [event["site"] for event in refused] == ["site-0"] * 3
    assert "norm" in refused[0]["why"]
    assert events(tmp_path, "end")[0]["distance"] < 1e-12
    with reopened(tmp_path) as protocol:
        assert gap_of(protocol) < 1e-12


def test_a_round_waits_for_the_minimum(tmp_path):
    here = nodes(tmp_path)
    for node in (100, 101):
        here[node].delay = 40  # polls; longer than the deadline
    run(
        Loopback(here),
        job(tmp_path, rounds=3, deadline=0.02, patience=30.0, minimum=3),
    )
    assert all(len(event["counted"]) >= 3 for event in events(tmp_path, "round"))


def test_a_registered_node_is_the_site_of_its_name_and_no_other(tmp_path, caplog):
    here = nodes(tmp_path)
    for site, node in zip(SITES, here.values(), strict=True):
        node.name = site
    here[103].config["site"] = "site-1"  # says it is somebody else
    here[55] = Node(here[100].app, 0, tmp_path / "x", name="stranger")
    grid = Loopback(here)
    run(grid, job(tmp_path, rounds=3))
    assert not [kind for kind, *_ in grid.asked if kind == "query"]
    assert not [node for _, node, _ in grid.asked if node == 55]
    for event in events(tmp_path, "round"):
        assert sorted(event["counted"]) == ["site-0", "site-1", "site-2"]
    assert "stranger" in caplog.text


def test_sites_evaluate_and_the_server_averages(tmp_path):
    def work(context):
        number = context.node_config["partition-id"]
        return Work(
            lambda x, batch: x,
            evaluate=lambda x: {"size": float(number), "num-examples": number + 1.0},
        )

    run(
        Loopback(nodes(tmp_path, work=work)),
        job(tmp_path, rounds=4, eval_every=2, deadline=5.0),
    )
    found = events(tmp_path, "evaluation")
    assert [event["after"] for event in found] == [0, 2, 4]
    assert found[0]["sites"] == 4 and found[0]["size"] == (0 + 2 + 6 + 12) / 10


def test_sites_tell_whom_the_model_serves_worst(tmp_path):
    def work(context):
        number = context.node_config["partition-id"]
        found = {"accuracy": number / 4, "loss": 1.0 * number, "size": 1.0}
        return Work(lambda x, batch: x, evaluate=lambda x: found)

    how = {"rounds": 2, "eval_every": 2, "deadline": 5.0, "per_client": True}
    only_sites = replace(job(tmp_path, **how), evaluate=None)
    run(Loopback(nodes(tmp_path, work=work)), only_sites)
    found = events(tmp_path, "evaluation")[-1]
    assert found["accuracy"] == 0.375 and found["accuracy/worst"] == 0.0
    assert found["loss/worst"] == found["loss/worst_tenth"] == 3.0  # of four sites
    assert found["loss/spread"] == pytest.approx(np.std([0, 1, 2, 3]))
    assert "size/worst" not in found  # nobody knows which end that is
    curves = ff.Study.load(tmp_path / "server" / "test").table()
    assert curves["accuracy/worst"].tolist() == [0.0, 0.0]


def test_settings_of_the_app_change_the_job(tmp_path):
    said = {"rounds": 7, "lr": 1, "local-steps": 3, "on-empty": "step"}
    changed = job(tmp_path).configured({**said, "mine": "x"}, own=["mine"])
    assert (changed.rounds, changed.lr, changed.local_steps) == (7, 1.0, 3)
    assert changed.on_empty == "step"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rounds": "many"}, "rounds .* must be a whole number; got 'many'"),
        ({"rounds": 0}, "rounds must be .* at least 1; got 0"),
        ({"minimum": 9}, "minimum and target"),
        ({"lr": True}, "lr .* must be a number; got True"),
        ({"lr": -1.0}, "lr must be positive"),
        ({"max-norm": 0.0}, "max_norm must be positive"),
        ({"on-empty": "stop"}, "on-empty .* must be 'skip' or 'step'; got 'stop'"),
        ({"on-empty": 1}, "on-empty .* must be 'skip' or 'step'; got 1"),
        ({"on_empty": "step"}, "unknown setting .* Did you mean 'on-empty'"),
        ({"roundz": 3}, "unknown setting .*'roundz'. Did you mean 'rounds'"),
        ({"eval-evry": 3}, "Did you mean 'eval-every'"),
        ({"eval-every": -1}, "eval_every must be .* at least 0; got -1"),
        ({"wrap": "x"}, "unknown setting"),
        ({"per-client": "each"}, "per-client .* must be true or false"),
        ({"sites": ""}, "sites must be different names"),
        ({"job": "a/b"}, "job must be a name"),
    ],
    ids=str,
)
def test_a_wrong_setting_of_the_app_is_one_clear_line(wrong, words, tmp_path):
    with pytest.raises(ValueError, match=words) as error:
        job(tmp_path).configured(wrong)
    assert "\n" not in str(error.value)


def test_a_schedule_over_flower_equals_simulate(tmp_path):
    lr = ff.schedules.Cosine(0.2, rounds=12, warmup=3)
    run(Loopback(nodes(tmp_path)), job(tmp_path, rounds=12, lr=lr))
    expected = ff.simulate(ff.Focus(), PROBLEM, ff.participation.Full(), rounds=12, lr=lr)
    with reopened(tmp_path, lr=lr) as protocol:
        assert gap(protocol.x, expected.x) < 1e-12
    (row,) = json.loads((tmp_path / "server/test/manifest.json").read_text())["runs"]
    assert row["lr"] == 0.2 and row["schedule"] == repr(lr)


def test_a_job_whose_schedule_gives_no_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="it is 0.0 in round 12"):
        job(tmp_path, rounds=13, lr=ff.schedules.Cosine(0.2, rounds=12))

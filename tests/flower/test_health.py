"""What goes wrong in a deployment is said aloud, and what waits does so quietly."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from loopback import FOCUS, PROBLEM, LatencyModel, Loopback, events, job, nodes

import focusfl as ff
from focusfl.core.metrics import TAKEN, check_names
from focusfl.core.result import COSTS
from focusfl.flower import Work, client_app, server_app
from focusfl.flower import events as written
from focusfl.flower.app import run
from focusfl.flower.ending import Unhealthy
from focusfl.flower.health import Health
from focusfl.studies import store

OWN = ("after", "sites", "event", "online", "why", "counted", "time", "metrics")


@pytest.mark.parametrize("where", ["sites", "server"])
def test_a_metric_may_be_called_as_events_call_their_own(where, tmp_path):
    """It killed the server app, or took the place of what the event said."""
    found = {name: float(number) for number, name in enumerate(OWN)} | {"loss": 2.5}
    work = lambda context: Work(lambda x, batch: x, evaluate=lambda x: found)  # noqa: E731
    this = replace(
        job(tmp_path, rounds=2, eval_every=1, deadline=5.0),
        evaluate=(lambda x: found) if where == "server" else None,
    )
    assert run(Loopback(nodes(tmp_path, work=work)), this) == []
    (kept,) = store.Study.load(this.place).runs
    assert {name: kept.curves[name][-1] for name in found} == found
    assert kept.curves["round"].tolist() == [0, 1, 2]
    for event in written.read(this.place):
        assert isinstance(event["event"], str) and isinstance(event["online"], list)


def test_a_metric_may_not_be_called_as_a_column_beside_it(tmp_path):
    """It took the place of the rounds, and every figure was wrong without a word."""
    beside = {*store.AXES, *store.IDENTITY, *COSTS, "client"}
    assert beside <= TAKEN
    for name in (*beside, "a\x1b[31m", "", "a\nb", 3):
        with pytest.raises(ValueError, match="a metric must have a printable name"):
            check_names([name])
    this = replace(job(tmp_path, rounds=2), evaluate=lambda x: {"seconds": 1.0})
    with pytest.raises(ValueError, match="got 'seconds'"):
        run(Loopback(nodes(tmp_path)), this)


def test_metrics_of_a_site_that_cannot_be_kept_are_left_out_aloud(tmp_path):
    def work(context):
        bad = context.node_config["partition-id"] == 1
        found = {"round" if bad else "loss": 1.0}
        return Work(lambda x, batch: x, evaluate=lambda x: found)

    this = replace(job(tmp_path, rounds=1, eval_every=1), evaluate=None)
    run(Loopback(nodes(tmp_path, work=work)), this)
    assert {event["site"] for event in events(tmp_path, "unfit")} == {"site-1"}
    assert events(tmp_path, "evaluation")[-1]["loss"] == 1.0


@pytest.mark.parametrize("kind", ["nothing", "refused", "unfit", "warning", "round"])
def test_what_sites_say_cannot_write_to_the_terminal_of_the_server(kind):
    evil = "a\x1b]0;pwned\x07\x9b2J\rb"
    event = {
        "event": kind, "round": 1, "rounds": 9, "counted": [], "missing": [evil],
        "late": [evil], "eta": 1.0, "site": "a", "why": evil, "metrics": {evil: 1.0},
    }  # fmt: skip
    said = written.describe(event)
    assert "pwned" in said and said.replace("\n", "").isprintable()


def test_a_warm_start_that_waits_for_a_site_writes_what_changes_alone(tmp_path, monkeypatch):
    """It wrote a hundred checkpoints a second, and 620 MB of events in a day."""
    here, clock = nodes(tmp_path, ff.Focus(warm_start=True)), LatencyModel()
    late = here.pop(103)

    class Later(Loopback):
        def get_nodes(self):
            if clock.now > 3_600:
                self.nodes[103] = late
            assert clock.now < 4_000, "it waits for ever"
            return super().get_nodes()

    monkeypatch.setattr("focusfl.flower.server.time", clock)
    this = job(tmp_path, ff.Focus(warm_start=True), rounds=2, poll=0.2)
    assert run(Later(here), this) == []
    waited = events(tmp_path, "waiting")
    assert waited[-1]["missing"] == ["site-3"] and len(waited) <= 4
    assert len(written.read(this.place)) <= 15
    assert [len(event["counted"]) for event in events(tmp_path, "round")] == [4, 4]
    (kept,) = store.Study.load(this.place).runs
    assert kept.row["vectors_sent"] == 2 * 4 * 3, "two rounds and the one before"
    assert set(kept.row["counted"].values()) == {2}


def test_a_line_that_was_torn_in_a_crash_costs_that_line_alone(tmp_path):
    """The next event was written behind it, and the end could not be read."""
    written.write(tmp_path, {"event": "open", "round": 0})
    with open(tmp_path / written.FILE, "a") as file:
        file.write('{"event": "rou')
    written.write(tmp_path, {"event": "open", "round": 1})
    assert [event["round"] for event in written.read(tmp_path)] == [0, 1]


def test_what_a_server_restored_from_a_backup_had_done_is_undone(tmp_path):
    def round_(number, *counted):
        return {"event": "round", "round": number, "counted": [*counted]}

    began = {"event": "begin", "round": 0}
    again = {"event": "begin", "round": 1}
    tested = [{"event": "evaluation", "after": n, "round": n} for n in (1, 2)]
    first = [began, round_(0, "a"), tested[0], round_(1, "a"), tested[1]]
    lasting = written.lasting([*first, again, round_(1, "b")])
    assert lasting == [began, round_(0, "a"), tested[0], again, round_(1, "b")]


def never(grid, folder, round):
    grid.nodes.pop(103, None)


def refused(grid, folder, round):
    if round >= 5:
        grid.nodes[103].app = client_app(lambda x, batch: x + 1e9, FOCUS)


def left_out(grid, folder, round):
    if round >= 1:
        grid.nodes[103].app = client_app(lambda x, batch: x + 1e9, FOCUS)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (never, "site-3 never took part: the model is that of the others alone"),
        (refused, "site-3 was refused 3 times; refused: its norm is"),
        (left_out, "site-3 was refused 5 times and left out; refused: its norm is"),
    ],
)
def test_a_run_that_is_not_what_it_was_to_be_fails_aloud(what, words, tmp_path):
    """And its results are there all the same."""
    grid = Loopback(nodes(tmp_path), lambda grid, round: what(grid, tmp_path, round))
    if what is never:
        grid.nodes.pop(103)
    this = job(tmp_path, rounds=8, deadline=0.05, max_norm=1e6)
    context = Context(1, 2, {}, RecordDict(), {"job": "test"})
    with pytest.raises(Unhealthy, match=words) as error:
        server_app(this)(grid, context)
    assert "\n" not in str(error.value)
    (end,) = events(tmp_path, "end")
    assert end["healthy"] is False and words in " ".join(end["why"])
    assert not events(tmp_path, "failed") and store.Study.load(this.place).runs
    health = Health(written.read(this.place)).as_dict()
    assert health["healthy"] is False and health["why"] == end["why"]
    assert health["state"] == "ended" and health["round"] == 8


def test_who_did_not_take_part_in_a_new_generation_is_named():
    both = {"counted": ["a", "b"], "missing": [], "late": [], "seconds": 1.0, "eta": 0}
    one = {**both, "counted": ["a"], "missing": ["b"]}
    rounds = [
        {"event": "round", "round": n, "rounds": 2, "generation": n + 1, **said}
        for n, said in enumerate((both, one))
    ]
    begin = {"event": "begin", "round": 0, "rounds": 2, "everybody": ["a", "b"]}
    (why,) = Health([{**begin, "time": 1.0}, *rounds]).failures()
    assert "b did not take part since generation 2 began" in why


def test_a_site_that_has_been_away_for_half_the_rounds_is_named(tmp_path):
    """The model follows what it said then: not wrong by any rule, but told."""

    def away(grid, round):
        if round == 5:
            grid.nodes.pop(103, None)

    this = job(tmp_path, rounds=24, deadline=0.05)
    assert run(Loopback(nodes(tmp_path), away), this) == []
    (end,) = events(tmp_path, "end")
    assert end["healthy"] and "site-3 in round 5" in end["warnings"][0]


def test_a_healthy_run_tells_rounds_bytes_and_ages(tmp_path):
    def slow(grid, round):
        grid.nodes[100].delay = 8 if round >= 2 else 0

    this = job(tmp_path, rounds=6, target=3)
    assert run(Loopback(nodes(tmp_path), slow), this) == []
    found = Health(written.read(this.place)).as_dict()
    assert (found["round"], found["rounds"], found["generation"]) == (6, 6, 1)
    model = PROBLEM.x0.nbytes
    assert found["bytes"]["up"] > 18 * model and found["bytes"]["down"] > 18 * model
    mine, others = found["sites"]["site-0"], found["sites"]["site-1"]
    assert others["state"] == "on time" and others["age"] == 0
    assert mine["state"] == "late" and mine["age"] == 5 - mine["last"] > 0
    assert np.isfinite(found["metrics"]["distance"]) and found["heard"] > 1e9


def test_a_job_without_its_events_is_judged_by_what_the_server_counted(tmp_path):
    def die(grid, round):
        if round == 3:
            raise KeyboardInterrupt

    here, this = nodes(tmp_path), job(tmp_path, rounds=5, deadline=0.05)
    with pytest.raises(KeyboardInterrupt):
        run(Loopback(here, die), this)
    (this.place / written.FILE).unlink()
    del here[103]
    assert run(Loopback(here), this) == []


def test_strangers_and_notices_are_told():
    began = {"event": "begin", "round": 0, "rounds": 9, "time": 1.0, "everybody": ["a"]}
    told = [{"event": "notice", "why": f"{n} weeks"} for n in range(20)]
    health = Health([began, *told, {"event": "stranger", "why": "node 7: who?"}])
    found = health.as_dict()
    assert found["strangers"] == 1 and found["error"] == "node 7: who?"
    assert len(found["notices"]) == 10 and found["notices"][-1] == "19 weeks"
    health.take(began)
    assert health.as_dict()["notices"] == []


def test_sites_of_an_empty_history_are_known_by_name():
    began = {"event": "begin", "round": 0, "rounds": 9, "time": 1.0, "online": ["a"]}
    found = Health([{**began, "everybody": ["a", "b"]}]).as_dict()
    assert {k: v["state"] for k, v in found["sites"].items()} == {
        "a": "never counted", "b": "offline",
    }  # fmt: skip
    assert found["state"] == "running" and not found["healthy"]

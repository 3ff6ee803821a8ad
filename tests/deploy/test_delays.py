"""Sites that take as long as a study's clock says."""

import numpy as np
import pytest
from flwr.app import Message
from loopback import Node

from focusfl.deploy import apps, study, timed_by
from focusfl.deploy.faults import chaos, delays
from focusfl.deploy.faults.app import study_client
from focusfl.deploy.local import local_study
from focusfl.flower.records import to_records
from focusfl.participation import LatencyModel
from focusfl.participation.latency import Work

TIMED = """
name = "test"
rounds = 12
lr = 0.01
local_steps = 3
[problem]
kind = "random_quadratic"
num_clients = 4
dim = 5
[latency]
compute = [0.5, 1.0, 1.5, 2.0]
up = 1e-4
latency = 6.0
jitter = 0.1
[participation.full]
[algorithms.focus]
"""
AGO = 0.25  # seconds since a request was made, when its reply is ready


def timed(folder, text=TIMED, *changes):
    (folder / "study.toml").write_text(text)
    return study.load(folder / "study.toml", changes, None, None, timed=True)


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_a_reply_leaves_when_it_is_as_old_as_the_clock_says(tmp_path, monkeypatch, jitter):
    this = timed(tmp_path, TIMED, f"latency.jitter={jitter}")
    apps.write_study(this, tmp_path / "app", {"chaos": ""})
    app = study_client(tmp_path / "app" / apps.PACKAGE)
    slept = []

    class Now:
        sleep = staticmethod(slept.append)

        @staticmethod
        def time():
            return message.metadata.created_at + AGO

    monkeypatch.setattr(delays, "time", Now)
    with this.job(tmp_path / "server").open_protocol() as protocol:
        for i, site in enumerate(this.sites):
            message = Message(to_records(protocol.request(site)), 9, "train")
            message.metadata.__dict__["_message_id"] = "1"
            reply = Node(app, i, tmp_path / site)(message)
            assert not reply.has_error(), reply.error.reason
    clock = LatencyModel(compute=[0.5, 1.0, 1.5, 2.0], up=1e-4, latency=6.0)
    pace = clock.pace(4, Work(3, 5 * 8, 5 * 8))
    factors = (np.array(slept) + AGO - pace.travel) / pace.compute
    if jitter:
        assert len(set(factors)) == 4 and (np.abs(np.log(factors)) < 0.5).all()
    else:
        np.testing.assert_allclose(factors, 1.0)


def test_what_the_simulator_says_of_it_is_what_a_run_by_that_clock_takes(tmp_path):
    import focusfl as ff

    this = timed(tmp_path, TIMED, "latency.jitter=0.0")
    who, laws = ff.participation, {}
    laws[None], laws[1] = who.Sync(this.latency), who.Async(this.latency)
    for target, law in laws.items():
        run = ff.simulate(ff.Focus(), this.problem, law, rounds=12, lr=1e-3, local_steps=3)
        assert timed_by.seconds_by_latency(this, target) == run.metrics["seconds"].sum() > 12
    assert study.load(tmp_path / "study.toml", [], None, None).latency is None


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, 1])
def test_a_real_fleet_takes_as_long_as_a_simulated_one(tmp_path, target):
    """On a quiet machine: what a message takes by itself is not in this clock."""
    this = timed(tmp_path, TIMED, "latency.latency=12.0")
    told = {} if target is None else {"target": target}
    done = local_study(
        this, tmp_path / "run", lambda event: None, chaos=chaos.parse(""), warm=True,
        settings=told,
    )  # fmt: skip
    assert done.played == pytest.approx(done.latency, rel=0.1)

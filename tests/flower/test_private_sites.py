"""Private sites over Flower's messages, alone and with compressors and secure sums."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from loopback import KEYS, PROBLEM, SITES, Loopback, Node, events, gap_of, job, open_job
from world.world import memory

import focusfl as ff
from focusfl.deploy import study as deploy
from focusfl.flower import client_app
from focusfl.flower.app import run
from focusfl.flower.client import _of_problem
from focusfl.flower.health import Health
from focusfl.flower.identity import Identity
from focusfl.flower.secure import Secure
from focusfl.privacy import Private
from focusfl.privacy.account import Terms

ROUNDS = 4
TERMS = {"clip": 1.0, "noise": 50.0, "level": "client", "accountant": "rdp"}
INTEGERS = ff.Compressed(ff.Focus(), ff.Quantize(8))
WHOLE = ff.Compressed(ff.Focus(), ff.FixedPoint(50, 44))


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def budget():
    """What so many rounds cost, and hardly more."""
    return 1.001 * ff.privacy.epsilon(50.0, ROUNDS, accountant="rdp")


def private_nodes(folder, algorithm, secure=None, **terms):
    (folder / "key").write_text(KEYS.secrets[0].hex())
    app = client_app(Private(PROBLEM, **TERMS | terms), algorithm, secure=secure)
    config = {"sums-key": str(folder / "key")} if secure else {}
    return {100 + i: Node(app, i, folder / s, **config) for i, s in enumerate(SITES)}


@pytest.mark.parametrize(
    "algorithm, secure",
    [(ff.Focus(), None), (INTEGERS, None), (WHOLE, Secure())],
    ids=["plain", "compressed", "coded and secure"],
)
def test_y_is_the_sum_of_memories_however_it_is_coded_noised_and_masked(folder, algorithm, secure):
    this = job(folder, algorithm, secure=secure, rounds=ROUNDS, lr=0.01)
    assert not run(Loopback(private_nodes(folder, algorithm, secure)), this)
    with this.open_protocol() as protocol:
        server = protocol.server
        server, gap = open_job(protocol) if secure else (server, gap_of(protocol))
        assert gap < 1e-12
        assert ff.core.tree.dot(server.y, server.y) > 1  # noise is in it
    said = events(folder, "round")
    for count, event in enumerate(said, 1):
        spent = ff.privacy.epsilon(50.0, count, accountant="rdp")
        assert event["epsilon"] == {site: pytest.approx(spent) for site in SITES}
    curve = Health(said).as_dict()["sites"]
    assert curve["site-3"]["epsilon"] == pytest.approx(said[-1]["epsilon"]["site-3"])


@pytest.mark.parametrize(
    "algorithm, secure",
    [(ff.Focus(), None), (WHOLE, Secure())],
    ids=["plain", "secure"],
)
def test_when_all_budgets_are_spent_the_training_ends_and_says_why(
    folder, algorithm, secure, budget
):
    this = job(folder, algorithm, secure=secure, rounds=ROUNDS + 3, lr=0.01)
    why = run(Loopback(private_nodes(folder, algorithm, secure, budget=budget)), this)
    assert why == [
        "4 of 4 sites have spent their privacy budgets: round 4 of 7 needs "
        f"{3 if secure else 1} and has 0."
    ]
    assert {event["site"] for event in events(folder, "spent")} == {*SITES}
    assert len(events(folder, "spent")) == 4 and len(events(folder, "round")) == ROUNDS
    lines = (folder / "server/test/events.jsonl").read_text().splitlines()
    states = Health(map(json.loads, lines)).as_dict()["sites"]
    assert {one["state"] for one in states.values()} == {"spent"}
    with this.open_protocol() as protocol:
        assert (open_job(protocol)[1] if secure else gap_of(protocol)) < 1e-12


def test_others_go_on_without_the_one_whose_budget_is_spent(folder, budget):
    nodes = private_nodes(folder, ff.Focus())
    nodes[100] = private_nodes(folder, ff.Focus(), budget=budget)[100]
    this = job(folder, rounds=ROUNDS + 3, lr=0.01)
    assert run(Loopback(nodes), this) == []
    counted = [event["counted"] for event in events(folder, "round")]
    assert counted == ROUNDS * [[*SITES]] + 3 * [[*SITES[1:]]]
    assert len(events(folder, "spent")) == 1
    with this.open_protocol() as protocol:
        assert gap_of(protocol) < 1e-12


STUDY = {
    "name": "private", "rounds": 4, "lr": 0.1, "local_steps": 2,
    "problem": {"kind": "ridge", "num_clients": 4, "dim": 3, "rows": 5},
    "privacy": {"clip": 1.0, "noise": 20.0, "budget": 0.4, "level": "client"},
    "participation": {"deployed": {"kind": "full"}}, "algorithms": {"focus": {}},
}  # fmt: skip


def test_sites_of_a_private_study_keep_account_and_show_no_plain_gradient(tmp_path):
    file = tmp_path / "study.json"
    file.write_text(json.dumps(STUDY))
    mine = deploy.read(file)
    work = _of_problem(mine.problem, Identity("site-1", 1, tmp_path), mine.seed)
    assert work.private == Terms(1.0, 20.0, "client", 1e-5, 0.4)
    assert work.whole is None
    found = [work.grad_fn(np.ones(3), work.batch_of(0)) for _ in range(2)]
    assert not np.array_equal(*found)  # the seed that everybody knows draws no noise


def test_a_site_with_a_budget_of_its_own_keeps_to_it_in_every_job(folder):
    """And gives no gradient without noise, whatever the server sends for work."""
    most = 1.001 * ff.privacy.epsilon(50.0, 2, accountant="rdp")
    nodes = private_nodes(folder, ff.Focus())
    nodes[100].config["epsilon"] = most
    assert run(Loopback(nodes), job(folder, rounds=ROUNDS, lr=0.01)) == []
    counted = [event["counted"] for event in events(folder, "round")]
    assert counted == 2 * [[*SITES]] + 2 * [[*SITES[1:]]]
    nodes[100].app = client_app(PROBLEM, ff.Focus())
    for call in ("train", "evaluate"):
        request = Message(RecordDict(), 100, call)
        assert "is not private" in nodes[100](request).error.reason

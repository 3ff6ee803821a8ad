"""Secure sums over Flower's messages, in this process."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chaos import Lossy
from flwr.app import Array, ArrayRecord
from helpers import gap
from loopback import PROBLEM, SITES, Loopback, Node, events, job, secure_gap
from world.world import memory

import focusfl as ff
from focusfl.flower import AlgorithmStrategy, client_app
from focusfl.flower.app import run
from focusfl.flower.protocol.messages import load_flat
from focusfl.flower.records import from_records
from focusfl.flower.secure import Secure
from focusfl.flower.secure.held import read_parts

CODED = ff.Compressed(ff.Focus(), ff.FixedPoint(50, 44))


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        yield Path(name)


def secure_nodes(folder):
    app = client_app(PROBLEM, CODED, secure=Secure())
    return {100 + i: Node(app, i, folder / s) for i, s in enumerate(SITES)}


def secure_job(folder, **more):
    return job(folder, CODED, secure=Secure(), **more)


def test_a_job_of_secure_sums_is_the_plain_one_to_its_resolution(folder):
    this = secure_job(folder, rounds=24)
    assert not run(Loopback(secure_nodes(folder)), this)
    plain = ff.simulate(CODED, PROBLEM, ff.participation.Full(), rounds=24, lr=0.2)
    with this.open_protocol() as protocol:
        assert gap(protocol.x, PROBLEM.optimum) < 1e-10
        assert gap(protocol.x, plain.x) < 1e-10
        assert secure_gap(folder, protocol) < 1e-12


def test_lost_replies_and_a_site_that_vanishes_leave_it_exact(folder):
    here = secure_nodes(folder)
    gone = {}

    def before(grid, round):  # in every stage of a round of its own, for a while
        asked = len(grid.asked)
        if 5 <= round < 9 and asked % 7 == 0 and 102 in grid.nodes:
            gone[102] = grid.nodes.pop(102)
        elif gone and asked % 11 == 0:
            grid.nodes |= gone

    lossy = Lossy(Loopback(here, before), drop=0.2, seed=3)
    this = secure_job(folder, rounds=24, deadline=0.3, patience=0.1)
    assert not run(lossy, this)
    refusals = events(folder, "refused")
    assert all(event.get("late") for event in refusals)  # what is late is no fault
    rounds = events(folder, "round")
    assert len(rounds) == 24 and min(len(r["counted"]) for r in rounds) == 3
    with this.open_protocol() as protocol:
        assert gap(protocol.x, PROBLEM.optimum) < 1e-10
        assert secure_gap(folder, protocol) < 1e-12


def test_the_server_is_given_no_push_and_no_gradient_and_writes_none(folder):
    seen, pushes = [], []

    class Tapped(Loopback):
        def pull_messages(self, message_ids):
            found = Loopback.pull_messages(self, message_ids)
            for message in found:
                seen.append(b"".join(from_records(message.content).values()))
                seen.append(repr(message.content).encode())
            for site in SITES:
                cache = read_parts(folder / site / "test" / f"{site}.state")
                states = [load_flat(blob) for blob in cache.values()]
                own = [one["inner/grad"] - one["unsent/y"] for one in states]
                pushes.extend([*own, *np.diff(own, axis=0)] if own else [])
            return found

    run(Tapped(secure_nodes(folder)), secure_job(folder, rounds=3, eval_every=1))
    files = [p.read_bytes() for p in (folder / "server").rglob("*") if p.is_file()]
    own = {push.tobytes() for push in pushes if np.any(push)}
    assert len(own) >= 12 and files and seen
    assert not any(push in blob for push in own for blob in [*files, *seen])
    assert not any(b"gradient" in text for text in seen)


def test_a_strategy_learns_secure_sums(folder):
    x0 = {"x": np.zeros(5)}
    app = client_app(lambda x, batch: {"x": x["x"] - 1.0}, CODED, secure=Secure())
    nodes = {100 + i: Node(app, i, folder / s) for i, s in enumerate(SITES)}
    this = replace(secure_job(folder), params=x0, evaluate=None)
    start = ArrayRecord({"x": Array(x0["x"])})
    result = AlgorithmStrategy(this).start(Loopback(nodes), start, num_rounds=24)
    assert np.abs(result.arrays["x"].numpy() - 1).max() < 1e-9
    assert {m["counted"] for m in result.train_metrics_clientapp.values()} == {4}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"secure": Secure(threshold=5)}, "at most the number of sites, 4; got 5"),
        ({"minimum": 2}, r"said by Secure\(minimum"),
        ({"max_norm": 3.0}, "max_norm needs single pushes"),
        ({"max_memory": 3.0}, "max_memory needs single pushes"),
        ({"weights": dict.fromkeys(SITES, 2.0)}, "weights needs single pushes"),
    ],
)
def test_a_job_that_cannot_be_secure_is_refused_in_one_line(folder, more, words):
    with pytest.raises(ValueError, match=words) as caught:
        job(folder, CODED, **{"secure": Secure(), **more})
    assert "\n" not in str(caught.value)


def test_a_site_that_lost_its_state_begins_a_new_generation(folder):
    """Nobody else has it; the model is kept, and exact again soon."""

    def wipe(grid, round):
        if round == 6:
            shutil.rmtree(folder / "site-2", ignore_errors=True)

    this = secure_job(folder, rounds=40)
    assert not run(Loopback(secure_nodes(folder), wipe), this)
    assert {event["site"] for event in events(folder, "missing")} == {"site-2"}
    with this.open_protocol() as protocol:
        assert protocol.generation == 2
        assert gap(protocol.x, PROBLEM.optimum) < 1e-10
        assert secure_gap(folder, protocol) < 1e-12


def test_a_site_that_leaves_a_secure_sum_begins_a_new_generation(folder):
    def leave(grid, round):
        if round == 6:
            grid.nodes[103].config["leave"] = True

    this = secure_job(folder, rounds=40)
    assert not run(Loopback(secure_nodes(folder), leave), this)
    rest = ff.problems.Quadratic(PROBLEM.H[:3], PROBLEM.h[:3])
    with this.open_protocol() as protocol:
        assert protocol.gone == ("site-3",) and protocol.generation == 2
        assert gap(protocol.x, rest.optimum) < 1e-9

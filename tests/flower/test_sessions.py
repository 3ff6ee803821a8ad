"""Secure sums over Flower's messages, in this process."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers import gap
from loopback import PROBLEM, SITES, Loopback, Node, events, gap_of, job
from world.disk import memory

import focusfl as ff
from focusfl.deploy.faults.chaos import Chaos
from focusfl.deploy.faults.lossy import Lossy
from focusfl.flower import AlgorithmStrategy, client_app
from focusfl.flower.app import run
from focusfl.flower.records import from_records
from focusfl.engines.protocol import Site, header
from focusfl.engines.protocol.format import unpack
from focusfl.flower.secure import Secure

CODED = ff.Coded(ff.Focus(), ff.FixedPoint(50, 44))


@pytest.fixture
def folder(as_a_user):
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
        assert gap_of(folder, protocol, CODED) < 1e-12


def test_lost_replies_and_a_site_that_vanishes_leave_it_exact(folder):
    here = secure_nodes(folder)
    gone = {}

    def before(grid, round):  # in every stage of a round of its own, for a while
        asked = len(grid.asked)
        if 5 <= round < 9 and asked % 7 == 0 and 102 in grid.nodes:
            gone[102] = grid.nodes.pop(102)
        elif gone and asked % 11 == 0:
            grid.nodes |= gone

    lossy = Lossy(Loopback(here, before), Chaos(drop=0.2, seed=3))
    this = secure_job(folder, rounds=24, deadline=0.3, patience=0.1)
    assert not run(lossy, this)
    refusals = events(folder, "refused")
    assert all(event.get("copy") for event in refusals)  # what is late is no fault
    rounds = events(folder, "round")
    assert len(rounds) == 24 and min(len(r["counted"]) for r in rounds) == 3
    with this.open_protocol() as protocol:
        assert gap(protocol.x, PROBLEM.optimum) < 1e-10
        assert gap_of(folder, protocol, CODED) < 1e-12


def test_the_server_is_given_no_push_and_no_gradient_and_writes_none(folder):
    seen, pushes = [], []

    class Tapped(Loopback):
        def pull_messages(self, message_ids):
            found = Loopback.pull_messages(self, message_ids)
            for message in found:
                seen.append(b"".join(from_records(message.content).values()))
                seen.append(repr(message.content).encode())
            for site in SITES:
                disk = Site(CODED, folder / site, "test", site).disk
                if disk.path.exists():
                    own = disk.last_reply()
                    pushes.append(unpack(own, header(own))["up"]["y"])
            return found

    run(Tapped(secure_nodes(folder)), secure_job(folder, rounds=3, evaluate_every=1))
    files = [p.read_bytes() for p in (folder / "server").rglob("*") if p.is_file()]
    own = {push.tobytes() for push in pushes if np.any(push)}
    assert len(own) >= 12 and files and seen
    assert not any(push in blob for push in own for blob in [*files, *seen])
    assert not any(b"gradient" in text for text in seen)


def test_flowers_own_rounds_have_no_stages_and_are_refused(folder):
    with pytest.raises(ValueError, match="run the job by server_app"):
        AlgorithmStrategy(secure_job(folder))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"secure": Secure(threshold=5)}, "at most the number of sites, 4; got 5"),
        ({"minimum": 2}, r"said by Secure\(minimum"),
        ({"copies": True}, "copies needs single pushes"),
        ({"max_norm": 3.0}, "max_norm needs single pushes"),
        ({"weights": dict.fromkeys(SITES, 2.0)}, "weights needs single pushes"),
    ],
)
def test_a_job_that_cannot_be_secure_is_refused_in_one_line(folder, more, words):
    with pytest.raises(ValueError, match=words) as caught:
        job(folder, CODED, **{"secure": Secure(), **more})
    assert "\n" not in str(caught.value)

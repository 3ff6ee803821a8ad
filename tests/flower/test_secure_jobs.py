"""Secure sums over Flower's messages, in this process."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from chaos import Lossy
from flwr.app import Array, ArrayRecord
from helpers import gap
from loopback import KEYS, PROBLEM, SITES, Loopback, Node, events, job, open_job
from world.world import memory

import focusfl as ff
from focusfl.flower import AlgorithmStrategy, client_app
from focusfl.flower.app import run
from focusfl.flower.secure import Secure

CODED = ff.Compressed(ff.Focus(), ff.FixedPoint(50, 44))


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        yield Path(name)


def secure_nodes(folder, work=PROBLEM, **config):
    (folder / "key").write_text(KEYS.secrets[0].hex())
    app = client_app(work, CODED, secure=Secure())
    config = {"sums-key": str(folder / "key"), **config}
    return {100 + i: Node(app, i, folder / s, **config) for i, s in enumerate(SITES)}


def secure_job(folder, **more):
    return job(folder, CODED, secure=Secure(), **more)


def test_a_job_of_secure_sums_is_the_plain_one_to_its_resolution(folder):
    this = secure_job(folder, rounds=24)
    assert not run(Loopback(secure_nodes(folder)), this)
    plain = ff.simulate(CODED, PROBLEM, ff.participation.Full(), rounds=24, lr=0.2)
    with this.open_protocol() as protocol:
        server, apart = open_job(protocol)
        assert gap(server.x, PROBLEM.optimum) < 1e-10 and gap(server.x, plain.x) < 1e-10
        assert apart < 1e-12
    end = events(folder, "end")[0]
    assert "distance" not in end and "tracker_norm" not in end  # the server knows neither


def test_lost_replies_and_sites_that_lose_everything_leave_it_exact(folder):
    here, gone = secure_nodes(folder), {}

    def before(grid, round):
        asked = len(grid.asked)
        if 5 <= round < 9 and asked % 7 == 0 and 102 in grid.nodes:
            gone[102] = grid.nodes.pop(102)
        elif gone and asked % 11 == 0:
            grid.nodes |= gone
        if asked % 13 == 0:
            here[101].state.clear()
            shutil.rmtree(folder / SITES[1], ignore_errors=True)

    lossy = Lossy(Loopback(here, before), drop=0.2, seed=3)
    this = secure_job(folder, rounds=40, deadline=0.3, patience=0.1)
    assert not run(lossy, this)
    assert min(len(r["counted"]) for r in events(folder, "round")) >= 3
    assert events(folder, "missing")
    with this.open_protocol() as protocol:
        server, apart = open_job(protocol)
        assert gap(server.x, PROBLEM.optimum) < 1e-10 and apart < 1e-12
        assert protocol.generation == 1


def test_a_site_that_leaves_takes_what_it_gave_along(folder):
    def leave(grid, round):
        if round == 6:
            grid.nodes[103].config["leave"] = True

    this = secure_job(folder, rounds=40)
    assert not run(Loopback(secure_nodes(folder), leave), this)
    rest = ff.problems.Quadratic(PROBLEM.H[:3], PROBLEM.h[:3])
    with this.open_protocol() as protocol:
        assert protocol.gone == ("site-3",) and protocol.generation == 1
        assert gap(open_job(protocol)[0].x, rest.optimum) < 1e-9


def test_a_site_that_fails_is_absent_and_nobody_hears_why(folder, caplog):
    """Its error is in its own log: what it depends on may be a patient."""

    def broken(x, batch):
        raise ValueError("patient 17 is no number")

    nodes, whole = secure_nodes(folder), secure_nodes(folder, broken)
    nodes[103].app = whole[103].app
    this = secure_job(folder, rounds=40)
    assert not run(Loopback(nodes), this)
    rest = ff.problems.Quadratic(PROBLEM.H[:3], PROBLEM.h[:3])
    with this.open_protocol() as protocol:
        assert gap(open_job(protocol)[0].x, rest.optimum) < 1e-9
    assert "patient 17" in caplog.text
    assert b"patient" not in b"".join(
        file.read_bytes() for file in (folder / "server").rglob("*") if file.is_file()
    )


def test_sites_of_secure_sums_need_a_key(folder):
    nodes, asked = secure_nodes(folder), []
    for node in nodes.values():
        del node.config["sums-key"]

    def stop(grid, round):
        asked.append(round)
        if len(asked) > 2 * len(nodes):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Loopback(nodes, stop), secure_job(folder, deadline=0.1))
    why = events(folder, "nothing")[0]["why"]
    assert "site-0 needs the key of secure sums: --node-config" in why


def test_a_strategy_cannot_give_a_model_that_its_server_does_not_have(folder):
    strategy = AlgorithmStrategy(secure_job(folder))
    with pytest.raises(ValueError, match="does not have it; server_app"):
        strategy.start(Loopback({}), ArrayRecord({"x": Array(np.zeros(5))}))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"secure": Secure(5)}, "at most the number of sites, 4; got 5"),
        ({"max_norm": 3.0}, "max_norm needs single pushes"),
        ({"max_memory": 3.0}, "max_memory needs single pushes"),
        ({"weights": dict.fromkeys(SITES, 2.0)}, "weights needs single pushes"),
        ({"eval_every": 2}, "eval_every needs the model"),
    ],
)
def test_a_job_that_cannot_be_secure_is_refused_in_one_line(folder, more, words):
    with pytest.raises(ValueError, match=words) as caught:
        job(folder, CODED, **{"secure": Secure(), **more})
    assert "\n" not in str(caught.value)

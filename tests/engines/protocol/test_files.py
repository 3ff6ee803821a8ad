"""What is on disk: complete at any moment, small, and nobody else's business."""

import math
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from helpers import ALL
from world.disk import Death
from world.job import NAMES, job
from world.laws import check
from world.world import World

import focusfl as ff
from focusfl import tree
from focusfl.engines.protocol import ProtocolServer, Refused, Site, files


def rounds(world, count):
    for r in range(count):
        for i in range(3):
            if (r + i) % 3:
                world.play(i)
        world.close()


def test_files_are_their_owners_alone_and_nothing_is_left_over(folder):
    with World(job(ff.Focus()), folder) as world:
        rounds(world, 3)
        world.ask(0)
        world.answer(world.network.requests.pop(), dying=Death(3, None))
        assert list((folder / NAMES[0] / "job").glob(".part-*"))
        world.play(0)
        world.close()
    names = {"server": "server.ledger"} | {name: f"{name}.state" for name in NAMES}
    for place, name in names.items():
        inside = folder / place / "job"
        found = {path.name: path for path in inside.iterdir()}
        before = {"server.1.ledger"} if place == "server" else set()
        assert found.keys() == {name, f"{name}.lock"} | before
        for path in found.values():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(inside.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "algorithm", [kind() for kind in ff.ALGORITHMS.values()], ids=repr
)
@pytest.mark.parametrize("num_clients", [2, 5])
def test_state_files_and_checkpoints_are_as_large_as_what_they_must_hold(
    algorithm, num_clients, folder
):
    """While everybody is at a different round, which is when most has to be kept: three
    models per client, or a memory twice and a reply."""
    model = np.ones(20_000)
    kept = tree.size(algorithm.init(model)[1]) // model.size
    most = max(3, 2 * kept + math.ceil(algorithm.cost[1])) + 0.05
    names = [f"site-{i}" for i in range(num_clients)]
    with ProtocolServer(algorithm, model, names, folder, job="job", lr=0.1) as protocol:
        sites = [Site(algorithm, folder, "job", name) for name in names]
        for _ in range(2):
            for site in sites:
                reply = site.answer(protocol.request(site.site), lambda x, b: 0.3 * x)
                assert protocol.receive(site.site, reply).applied
                protocol.close_round()
                assert site.disk.path.stat().st_size < most * model.nbytes
                whole = 3.05 * model.nbytes * num_clients
                assert protocol._path.stat().st_size < whole


def test_copies_cost_one_model_per_client(folder):
    model = np.ones(20_000)
    with ProtocolServer(
        ff.Focus(), model, ["a", "b"], folder, job="job", lr=0.1, copies=True
    ) as protocol:
        for name in ("a", "b"):
            site = Site(ff.Focus(), folder, "job", name)
            protocol.receive(name, site.answer(protocol.request(name), lambda x, b: x))
            protocol.close_round()
            assert site.disk.path.stat().st_size < 3.05 * model.nbytes
    assert protocol._path.stat().st_size < (2 + 2 + 0.05) * model.nbytes


def test_a_damaged_state_counts_as_lost(folder, caplog):
    with World(job(ff.Focus()), folder) as world:
        rounds(world, 3)
        path = world.sites[0].disk.path
        whole = path.read_bytes()
        grad = world.sites[0].disk.load().pending.memory.grad.tobytes()
        changed = whole.replace(grad, bytes([grad[0] ^ 1]) + grad[1:])
        for damaged in (whole[: whole.index(grad) + 3], b"", whole[:40], changed):
            path.write_bytes(damaged)
            assert world.sites[0].memory(world.server.applied[NAMES[0]]) is None
        assert "counts as lost" in caplog.text
        world.excused[0] |= world.made[0]
        assert world.play(0) == "lost"
        world.close()
        check(world)


def test_a_damaged_answer_is_not_sent_again(folder):
    with World(job(ff.Focus()), folder) as world:
        rounds(world, 2)
        request = world.server.request(NAMES[0])
        world.sites[0].answer(request, world.gradient(0))
        path = world.sites[0].disk.path
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(Refused, match="damaged"):
            world.sites[0].answer(request, world.gradient(0))


def test_a_checkpoint_of_another_job_is_not_taken_for_ours(folder):
    options = {"job": "job", "lr": 0.1}
    with ProtocolServer(ff.Focus(), np.zeros(3), ["a", "b"], folder, **options):
        pass
    for algorithm, params, sites, why in [
        (ff.MIFA(), np.zeros(3), ["a", "b"], "algorithm"),
        (ff.Focus(), np.zeros(3), ["a", "c"], "sites"),
        (ff.Focus(), np.zeros(4), ["a", "b"], "server/x"),
        (ff.Focus(), {"w": np.zeros(3)}, ["a", "b"], "server/x"),
    ]:
        with pytest.raises(ValueError, match=f"cannot resume.*{why}"):
            ProtocolServer(algorithm, params, sites, folder, **options)
    with ProtocolServer(
        ff.Focus(), np.ones(3), ["a", "b"], folder, changed="accept", **options
    ) as protocol:
        assert np.array_equal(protocol.x, np.zeros(3))  # resumed, not begun


def test_one_server_at_a_time_holds_a_job(folder):
    options = {"job": "job", "lr": 0.1}
    with ProtocolServer(ff.Focus(), np.zeros(3), ["a"], folder, **options):
        with pytest.raises(ValueError, match="held by another"):
            ProtocolServer(ff.Focus(), np.zeros(3), ["a"], folder, **options)
    ProtocolServer(ff.Focus(), np.zeros(3), ["a"], folder, **options).close()


def test_two_processes_of_one_site_work_one_after_the_other(folder):
    """The second waits, then finds the answer of the first."""
    with ProtocolServer(
        ff.Focus(), np.zeros(3), ["a"], folder, job="job", lr=0.1
    ) as protocol:
        request = protocol.request("a")
        files.save(folder / "request", request)
        code = f"""
            import time
            from pathlib import Path
            import focusfl as ff
            from focusfl.engines.protocol import Site, files
            folder = Path({str(folder)!r})
            def grad(x, batch):
                (folder / "begun").touch()
                time.sleep(0.5)
                return x + 1
            site = Site(ff.Focus(), folder, "job", "a")
            site.answer(files.load(folder / "request"), grad)
        """
        other = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
        while not (folder / "begun").exists():
            assert other.poll() is None
        reply = Site(ff.Focus(), folder, "job", "a").answer(request, lambda x, b: 1 / 0)
        assert other.wait() == 0
        assert protocol.receive("a", reply).applied


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\n", "-x", "ä", "a" * 101, 3])
def test_names_that_are_no_file_names_are_refused(name, folder, as_a_user):
    with pytest.raises(ValueError, match="must be a name of letters"):
        Site(ff.Focus(), folder, "job", name)
    with pytest.raises(ValueError, match="must be a name of letters"):
        ProtocolServer(ff.Focus(), np.zeros(3), ["a"], folder, job=name, lr=0.1)


def test_a_state_of_another_algorithm_is_an_error(folder):
    with World(job(ff.Focus()), folder) as world:
        rounds(world, 2)
    with pytest.raises(ValueError, match="Give the job another name"):
        Site(ff.MIFA(), folder / NAMES[0], "job", NAMES[0]).memory(1)


def test_models_may_have_any_names(folder):
    odd = {"a/b": np.ones(2), "a%2Fb": np.zeros(1), "": {"%": np.ones(())}, "ä.w": 1.5}
    odd["ä.w"] = np.float32(1.5)
    with ProtocolServer(
        ff.Scaffnew(), odd, ["a"], folder, job="job", lr=0.1
    ) as protocol:
        site = Site(ff.Scaffnew(), folder, "job", "a")
        for _ in range(3):
            reply = site.answer(protocol.request("a"), lambda x, batch: x)
            assert protocol.receive("a", reply).applied
            protocol.close_round()
        assert protocol.x.keys() == odd.keys()
        assert (
            np.allclose(protocol.x["a/b"], 0.9**3)
            and protocol.x["ä.w"].dtype == "float32"
        )
    for wrong in ({3: np.ones(2)}, np.array(["text"]), np.array([1j]), np.array([2])):
        with pytest.raises(ValueError, match="must be str|not travel|floating"):
            ProtocolServer(ff.FedAvg(), wrong, ["a"], folder, job="other", lr=0.1)


def test_all_algorithms_were_tried():
    assert {type(alg) for alg in ALL} == set(ff.ALGORITHMS.values())
    assert issubclass(Refused, ValueError)

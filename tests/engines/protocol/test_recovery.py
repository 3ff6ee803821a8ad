"""Lost disks, departures, returns, warm starts: what the job does about each."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from helpers import Diary, gap, quadratic
from world.job import job as setting
from world.laws import check
from world.world import World

import focusfl as ff
from focusfl.algorithms.focus import Focus
from focusfl.engines.protocol import ProtocolServer, Site, header

N = 4
NAMES = [f"site-{i}" for i in range(N)]
LEAVES = [ff.Focus(), ff.MIFA(), ff.FedVARP(), ff.Scaffold(), ff.Scaffold(option=1)]
BASE = quadratic(num_clients=N)
PROBLEM = ff.problems.Quadratic(np.eye(5) + 0.05 * BASE.H, BASE.h)  # few rounds will do


def grad(i):
    return lambda x, batch: PROBLEM.H[i] @ x - PROBLEM.h[i]


def optimum(ids):
    return np.linalg.solve(PROBLEM.H[ids].sum(0), PROBLEM.h[ids].sum(0))


class Job:
    """A job whose messages all arrive."""

    def __init__(self, algorithm, folder, **options):
        lr = 0.2 if isinstance(algorithm, Focus) else 0.8  # the others divide by N
        options = {"job": "job", "lr": lr, "local_steps": 1, **options}
        self.open = lambda: ProtocolServer(
            algorithm, np.zeros(5), NAMES, folder, **options
        )
        self.protocol = self.open()
        self.sites = [Site(algorithm, folder, "job", name) for name in NAMES]

    def play(self, ids, rounds=1):
        for _ in range(rounds):
            for i in ids:
                reply = self.sites[i].answer(self.protocol.request(NAMES[i]), grad(i))
                assert self.protocol.receive(NAMES[i], reply).applied
            self.protocol.close_round()

    def arrives(self, ids):
        """Whether a hundred rounds of these are enough to be at their optimum, where
        it stays."""
        there = [False]
        while len(there) < 20 and not all(there[-2:]):
            self.play(ids, 5)
            there.append(gap(self.protocol.x, optimum([*ids])) < 1e-12)
        return all(there[-2:])


@pytest.fixture
def start(beginning):
    return partial(beginning, Job)


@pytest.mark.parametrize("algorithm", LEAVES, ids=repr)
def test_after_a_goodbye_the_others_minimise_their_own_mean(algorithm, start):
    job = start(algorithm)
    job.play(range(N), 30)
    lost = job.sites[3].goodbye(job.protocol.request("site-3"))
    assert header(lost).fields["kind"] == "goodbye"
    job.play(range(3))  # its goodbye got lost: it is asked again
    assert job.protocol.gone == ()
    goodbye = job.sites[3].goodbye(job.protocol.request("site-3"))
    assert job.protocol.receive("site-3", goodbye).applied
    job.protocol.close_round()
    assert job.protocol.gone == ("site-3",) and job.protocol.free == tuple(NAMES[:3])
    assert job.arrives(range(3))
    assert job.arrives(range(N)) and job.protocol.gone == ()  # and it may come back
    assert job.protocol.epoch == 1


def test_the_goodbye_of_focus_is_minus_its_gradient(start):
    job = start(ff.Focus(), local_steps=4)
    job.play(range(N), 3)
    held = job.sites[3].memory(job.protocol.applied["site-3"]).grad
    before = job.protocol.server.y
    job.protocol.receive("site-3", job.sites[3].goodbye(job.protocol.request("site-3")))
    job.protocol.close_round()
    assert gap(job.protocol.server.y, before - held) < 1e-15


@pytest.mark.parametrize(
    "algorithm", [ff.Scaffnew(), ff.ProxSkip(), ff.LocalSGD(), ff.FedAWE()], ids=repr
)
def test_where_one_push_cannot_take_it_all_back_goodbye_says_so(algorithm, start):
    job = start(algorithm)
    job.play(range(N), 3)
    disk = job.sites[3].disk.path.read_bytes()
    with pytest.raises(ValueError, match="has no goodbye"):
        job.sites[3].goodbye(job.protocol.request("site-3"))
    assert job.sites[3].disk.path.read_bytes() == disk


@pytest.mark.parametrize("copies", [True, False], ids=["copies", "epochs"])
@pytest.mark.parametrize("algorithm", LEAVES, ids=repr)
def test_a_site_that_never_returns_can_be_forgotten(algorithm, copies, start):
    job = start(algorithm, copies=copies)
    job.play(range(N), 30)
    job.protocol.request("site-3")
    job.protocol.forget("site-3")
    assert job.protocol.gone == ("site-3",) and job.protocol.waiting == {}
    assert job.protocol.epoch == (1 if copies else 2)
    job.protocol.close_round()
    assert job.arrives(range(3))
    # Should it return all the same, it is told what it has to go on from.
    again = job.sites[3].answer(job.protocol.request("site-3"), grad(3))
    assert job.protocol.receive("site-3", again).status == (
        "lost" if copies else "applied"
    )
    job.play(range(3 if not copies else N))
    assert job.arrives(range(N))


def test_whoever_was_just_counted_is_not_forgotten_or_asked_again(start):
    job = start(ff.Focus())
    reply = job.sites[0].answer(job.protocol.request("site-0"), grad(0))
    assert job.protocol.receive("site-0", reply).applied
    for wrong in (job.protocol.forget, job.protocol.request):
        with pytest.raises(ValueError, match="counted"):
            wrong("site-0")
    for wrong in (job.protocol.forget, job.protocol.request, job.protocol.give_up):
        with pytest.raises(ValueError, match="unknown site"):
            wrong("nobody")


def test_giving_up_an_earlier_request_leaves_the_present_one(start):
    job = start(ff.Focus())
    old = job.protocol.request("site-0")
    number = job.protocol.asked["site-0"]
    job.protocol.new_epoch()
    new = job.protocol.request("site-0")
    assert job.protocol.asked["site-0"] > number
    late = job.sites[0].answer(old, grad(0))
    assert job.protocol.receive("site-0", late).status == "refused"
    job.protocol.give_up("site-0", number)
    assert job.protocol.receive("site-0", job.sites[0].answer(new, grad(0))).applied
    job.protocol.give_up("site-0", 10**9)  # never asked: nothing to give up
    job.protocol.request("site-1")
    job.protocol.give_up("site-1", job.protocol.asked["site-1"])
    assert "site-1" in job.protocol.free


def test_a_copy_of_an_earlier_push_is_never_sent_back(start):
    """Kept for a while and then no longer, it must not be mistaken for the last."""
    job = start(ff.Focus(), copies=True)
    job.play(range(N), 2)
    job.protocol.close()
    job = start(ff.Focus(), copies=False)
    job.play(range(N), 2)
    job.sites[0].disk.path.unlink()
    for status in ("lost", "lost"):  # asked once more, it still has nothing to go on
        reply = job.sites[0].answer(job.protocol.request("site-0"), grad(0))
        assert job.protocol.receive("site-0", reply).status == status
    job.protocol.close_round()
    assert job.protocol.epoch == 2
    assert job.arrives(range(N))


def test_a_late_push_comes_back_from_its_copy(folder):
    """A diary has the round that a push was made for, not that it counted in."""
    with World(setting(Diary(), copies=True), folder) as world:
        world.ask(0)
        world.answer(world.network.requests.pop())
        for _ in range(3):
            world.close()
        world.bring(world.network.replies.pop())
        world.close()
        assert world.tally["late"] == 1
        world.rewind(0, {})
        assert [world.play(0), world.play(0)] == ["lost", "applied"]
        check(world)
        assert world.sites[0].disk.load().acked.memory.rounds == 1


def test_a_site_may_be_called_server_and_live_next_to_it(folder):
    with ProtocolServer(
        ff.Focus(), np.zeros(5), ["server"], folder, job="job", lr=0.1
    ) as protocol:
        site = Site(ff.Focus(), folder, "job", "server")
        for _ in range(2):
            reply = site.answer(protocol.request("server"), grad(0))
            assert protocol.receive("server", reply).applied
            protocol.close_round()


def test_an_acknowledgement_names_the_push_and_not_its_number_alone(start):
    """A site that lost its disk answers an old request anew, and differently."""
    job = start(ff.Focus())
    request = job.protocol.request("site-0")
    first = job.sites[0].answer(request, grad(0))
    assert job.protocol.receive("site-0", first).applied
    job.sites[0].disk.path.unlink()
    job.sites[0].answer(request, lambda x, batch: grad(0)(x, batch) + 1e-3)
    job.protocol.close_round()
    receipt = job.protocol.receive(
        "site-0", job.sites[0].answer(job.protocol.request("site-0"), grad(0))
    )
    assert receipt.status == "lost"


def test_asked_twice_a_site_gives_one_answer(start):
    job = start(ff.Focus())
    request, calls = job.protocol.request("site-0"), []

    def counting(x, batch):
        calls.append(batch.number)
        return grad(0)(x, batch)

    first = job.sites[0].answer(request, counting)
    assert job.sites[0].answer(request, counting) == first and calls == [0]
    assert job.protocol.receive("site-0", first).applied
    assert job.protocol.receive("site-0", first).status == "refused"


def test_gradients_are_counted_when_they_are_and_through_a_lost_disk(start):
    job = start(ff.Focus(), local_steps=3)
    numbers = []

    def counting(x, batch):
        numbers.append(batch.number)
        return grad(0)(x, batch)

    def answer():
        return job.sites[0].answer(job.protocol.request("site-0"), counting)

    job.protocol.receive("site-0", answer())
    job.protocol.close_round()
    answer()  # lost
    assert job.protocol.receive("site-0", answer()).applied
    job.protocol.close_round()
    job.sites[0].disk.path.unlink()
    assert job.protocol.receive("site-0", answer()).status == "lost"
    job.protocol.close_round()
    assert job.protocol.receive("site-0", answer()).applied
    assert job.protocol.epoch == 2
    assert numbers == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8]


def test_a_warm_start_waits_for_everybody_through_a_crash(start):
    job = start(ff.Focus(warm_start=True), local_steps=3)
    for ids in ([0, 2], [3], []):
        for i in ids:
            reply = job.sites[i].answer(job.protocol.request(NAMES[i]), grad(i))
            assert job.protocol.receive(NAMES[i], reply).applied
        assert job.protocol.close_round() is None and job.protocol.round == 0
        job.protocol.close()
        job.protocol = job.open()
    assert job.protocol.free == ("site-1",)
    reply = job.sites[1].answer(job.protocol.request("site-1"), grad(1))
    assert job.protocol.receive("site-1", reply).applied
    assert set(job.protocol.close_round()) == set(NAMES) and job.protocol.round == 0
    assert np.array_equal(job.protocol.x, np.zeros(5))
    assert gap(job.protocol.server.y, -PROBLEM.h.sum(0)) < 1e-14
    job.play([0, 1], 2)
    masks = np.zeros((2, N), bool)
    masks[:, :2] = True
    expected = ff.loop(
        ff.Focus(warm_start=True), PROBLEM, ff.participation.Replay(masks), rounds=2,
        lr=0.2, local_steps=3,
    )  # fmt: skip
    assert gap(job.protocol.server, expected.server) < 1e-14


@dataclass(frozen=True)
class Counting(Focus):
    """Asks on the client how many take part."""

    def push(self, client, down, local, rd):
        client, up = Focus.push(self, client, down, local, rd)
        return client, {"y": up["y"] / rd.num_active}


def test_what_a_client_cannot_know_it_may_not_ask(folder):
    with pytest.raises(ValueError, match="num_active"):
        ProtocolServer(Counting(), np.zeros(3), ["a"], folder, job="job", lr=0.1)


def test_a_model_that_is_not_finite_is_not_written(start):
    job = start(ff.Focus(), lr=1e200, max_norm=float("inf"))
    job.play(range(N))
    with pytest.raises(ArithmeticError, match="Lower lr"):
        for _ in range(5):
            job.play(range(N))
    job.protocol.close()
    job.protocol = job.open()
    assert np.isfinite(job.protocol.x).all()


def test_what_sites_must_be_told_is_kept_until_they_were_and_no_longer(folder):
    """Three sites took part in rounds of their own; each waits for its broadcast."""
    with World(setting(ff.LocalSGD()), folder) as world:
        for i in (0, 1, 2):
            world.play(i)
            world.close()
        assert world.server.ledger.kept.keys() == {"0", "1", "2"}
        for _ in range(5):
            world.close()
        world.restart()
        assert world.server.ledger.kept.keys() == {"0", "1", "2"}
        for i in (2, 0):
            world.play(i)
        check(world)
        world.close()
        assert world.server.ledger.kept.keys() == {"1", "8"}
        world.play(1)
        world.close()
        check(world)
        assert world.server.ledger.kept.keys() == {"8", "9"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"lr": -1}, "lr must be positive"),
        ({"local_steps": 0}, "local_steps must be"),
        ({"max_norm": 0}, "max_norm must be"),
        ({"on_empty": "stop"}, "on_empty must be"),
    ],
    ids=lambda a: str(a),
)
def test_wrong_options_are_refused(wrong, why, folder, as_a_user):
    with pytest.raises(ValueError, match=why):
        ProtocolServer(
            ff.Focus(), np.zeros(3), ["a"], folder, **{"job": "j", "lr": 1, **wrong}
        )
    for sites in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="different names"):
            ProtocolServer(ff.Focus(), np.zeros(3), sites, folder, job="j", lr=1)

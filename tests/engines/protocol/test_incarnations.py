"""A server that knows less than its sites: restored, forked, or without its disk."""

import numpy as np
import pytest
from helpers import ALL
from test_exactness import EXACT, LR, NAMES, N, error, grad
from world.job import job as setting
from world.laws import check
from world.world import World

import focusfl as ff
from focusfl.engines.protocol import ProtocolServer, Site, header

EVERYBODY = range(N)


class Story:
    """A job whose server's disk may be copied, put back and lost."""

    def __init__(self, algorithm, folder, copies=False):
        self.open = lambda: ProtocolServer(
            algorithm, np.zeros(5), NAMES, folder, job="job", lr=LR, local_steps=3,
            copies=copies,
        )  # fmt: skip
        self.protocol = self.open()
        self.sites = [Site(algorithm, folder, "job", name) for name in NAMES]
        self.said = []  # every reply there ever was

    def play(self, ids=EVERYBODY, rounds=1):
        """Rounds of these; give what became of their replies."""
        receipts = []
        for _ in range(rounds):
            for i in ids:
                reply = self.sites[i].answer(self.protocol.request(NAMES[i]), grad(i))
                self.said.append((NAMES[i], reply))
                receipts.append(self.protocol.receive(NAMES[i], reply).status)
            self.protocol.close_round()
        return receipts

    def restart(self, disk=None):
        """Kill the server and start it again, with this on its disk."""
        self.protocol.close()
        if disk == b"":
            self.protocol._path.unlink()
        elif disk is not None:
            self.protocol._path.write_bytes(disk)
        self.protocol = self.open()

    @property
    def disk(self):
        return self.protocol._path.read_bytes()


@pytest.fixture
def story(folder, as_a_user):
    stories = []

    def begin(*arguments, **options):
        stories.append(Story(*arguments, folder, **options))
        return stories[-1]

    yield begin
    for one in stories:
        one.protocol.close()


@pytest.mark.parametrize("copies", [False, True], ids=["", "copies"])
@pytest.mark.parametrize("algorithm", EXACT, ids=repr)
def test_restored_forked_and_without_its_disk_a_server_ends_exact(
    algorithm, copies, story
):
    """One backup is put back twice, each time under numbers that were given out."""
    job = story(algorithm, copies=copies)
    job.play(rounds=5)
    backup = job.disk
    for played in ([0, 1, 2], [1, 2, 3]):
        job.restart()  # so that the future has the numbers of the life to come
        job.play(played, rounds=2)
        job.restart(backup)
        for sender, reply in job.said:
            assert job.protocol.receive(sender, reply).status == "refused"
        job.play([0, 1])
    job.play(rounds=3)
    assert job.protocol.epoch > 1
    job.restart(b"")
    assert job.protocol.epoch == 1 and {*job.play()} == {"ahead"}
    assert {*job.play(rounds=160)} == {"applied"}
    assert error(job.protocol.x) < 1e-12


@pytest.mark.parametrize("algorithm", [ff.Scaffold(), ff.Scaffnew()], ids=repr)
def test_an_answer_to_the_abandoned_future_is_not_repeated(algorithm, story):
    """The server is a round behind, and asks something else under the same number."""
    job = story(algorithm)
    job.play(rounds=2)
    backup = job.disk
    job.restart()
    asked = job.protocol.request("site-0")
    first = job.sites[0].answer(asked, grad(0))
    assert job.sites[0].answer(asked, grad(0)) == first
    job.play([1, 2])
    job.restart(backup)
    again = job.protocol.request("site-0")
    assert header(again).fields["seq"] == header(asked).fields["seq"]
    reply = job.sites[0].answer(again, grad(0))
    assert header(reply).fields["kind"] == "ahead" and reply != first
    assert "incarnation" in job.protocol.receive("site-0", first).why
    assert job.protocol.receive("site-0", reply).status == "ahead"
    job.protocol.close_round()
    job.play(rounds=200)
    assert error(job.protocol.x) < 1e-12


def test_what_settles_a_push_is_that_of_the_present_server(story):
    """A push that both have counted, in rounds that differ: neither has lost it."""
    job = story(ff.Scaffnew())
    reply = job.sites[0].answer(job.protocol.request("site-0"), grad(0))
    assert job.protocol.receive("site-0", reply).applied
    job.protocol.save()
    backup = job.disk
    job.play([1])  # the round that counts it ends with somebody else
    job.play([0])
    job.restart(backup)
    job.play([2, 3])
    assert job.play(rounds=1).count("applied") == N and job.protocol.epoch == 1
    job.play(rounds=250)
    assert error(job.protocol.x) < 1e-12


def test_a_late_request_of_an_earlier_life_costs_nothing(story):
    job = story(ff.Focus())
    job.play(rounds=2)
    old = job.protocol.request("site-0")
    job.restart()
    job.play()
    disk = job.sites[0].disk.path.read_bytes()
    reply = job.sites[0].answer(old, grad(0))
    assert header(reply).fields["kind"] == "ahead"
    assert job.sites[0].disk.path.read_bytes() == disk
    assert job.protocol.receive("site-0", reply).status == "refused"
    assert {*job.play()} == {"applied"} and job.protocol.epoch == 1


def test_a_warm_start_behind_its_sites_begins_an_epoch_and_not_a_wait(story):
    job = story(ff.Focus(warm_start=True))
    job.play(rounds=3)
    job.restart(b"")
    assert {*job.play()} == {"ahead"} and job.protocol.epoch == 2
    assert {*job.play(rounds=160)} == {"applied"}
    assert error(job.protocol.x) < 1e-12


def test_no_site_is_ahead_by_more_epochs_than_there_can_be(story):
    job = story(ff.Focus())
    job.play()
    job.restart(b"")
    job.protocol.request("site-0")
    state = job.sites[0].disk.load()
    for latest, status in ((1 << 50, "refused"), (0, "refused"), (7, "ahead")):
        reply = job.sites[0]._behind(
            job.protocol._requests["site-0"], state._replace(epoch=latest)
        )
        assert job.protocol.receive("site-0", reply).status == status
    job.protocol.close_round()
    assert job.protocol.epoch == 8


@pytest.mark.parametrize("algorithm", ALL, ids=repr)
def test_whatever_the_algorithm_a_restored_server_holds_what_it_counted(
    algorithm, folder, as_a_user
):
    with World(setting(algorithm), folder) as world:
        for disk in ("as it is", "of a while ago", "empty"):
            backup = world.home.image(), world.saved
            for _ in range(3):
                for i in range(3):
                    world.play(i)
                world.close()
                check(world)
            if disk == "as it is":
                world.restart()
            else:
                world.restore(*(backup if disk != "empty" else world.backups[0]))
            check(world)
        for i in range(3):
            world.play(i)
        assert world.tally["applied"] > 20 and world.tally["ahead"] > 1

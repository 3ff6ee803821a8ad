"""A server that knows less than its sites: restored, forked, or without its disk."""

import pytest
from helpers import ALL
from wire_job import EVERY
from world.job import job as setting
from world.laws import check
from world.world import World

import focusfl as ff
from focusfl.engines.protocol import header


def said(receipts):
    return {receipt.status for receipt in receipts}


@pytest.mark.parametrize(
    ("algorithm", "copies"),
    [*((one, False) for one in EVERY), (ff.Focus(), True), (ff.Scaffnew(), True)],
    ids=repr,
)
def test_restored_forked_and_without_its_disk_a_server_ends_exact(
    algorithm, copies, begun
):
    """One backup is put back twice, each time under numbers that were given out."""
    job = begun(algorithm, copies=copies)
    job.play(5)
    backup = job.disk
    for played in ([0, 1], [1, 2]):
        job.restart()  # so that the future has the numbers of the life to come
        job.play(2, played)
        job.restart(backup)
        for sender, reply in job.said:
            assert job.protocol.receive(sender, reply).status == "refused"
        job.play(1, [0])
    job.play(3)
    assert job.protocol.epoch > 1
    job.restart(b"")
    assert job.protocol.epoch == 1 and said(job.play()) == {"ahead"}
    assert said(job.play()) == {"applied"}
    assert job.settles(1e-11)


@pytest.mark.parametrize("algorithm", [ff.Scaffold(), ff.Scaffnew()], ids=repr)
def test_an_answer_to_the_abandoned_future_is_not_repeated(algorithm, begun):
    """The server is a round behind, and asks something else under the same number."""
    job = begun(algorithm)
    job.play(2)
    backup = job.disk
    job.restart()
    asked = job.protocol.request("site-0")
    first = job.sites[0].answer(asked, job.grad(0))
    assert job.sites[0].answer(asked, job.grad(0)) == first
    job.play(1, [1, 2])
    job.restart(backup)
    again = job.protocol.request("site-0")
    assert header(again).fields["seq"] == header(asked).fields["seq"]
    reply = job.sites[0].answer(again, job.grad(0))
    assert header(reply).fields["kind"] == "ahead" and reply != first
    assert "incarnation" in job.protocol.receive("site-0", first).why
    assert job.protocol.receive("site-0", reply).status == "ahead"
    job.protocol.close_round()
    assert job.settles(1e-11)


def test_what_settles_a_push_is_that_of_the_present_server(begun):
    """A push that both have counted, in rounds that differ: neither has lost it."""
    job = begun(ff.Scaffnew())
    reply = job.sites[0].answer(job.protocol.request("site-0"), job.grad(0))
    assert job.protocol.receive("site-0", reply).applied
    job.protocol.save()
    backup = job.disk
    job.play(1, [1])  # the round that counts it ends with somebody else
    job.play(1, [0])
    job.restart(backup)
    job.play(1, [1, 2])
    assert said(job.play()) == {"applied"} and job.protocol.epoch == 1
    assert job.settles(1e-11)


def test_a_late_request_of_an_earlier_life_costs_nothing(begun):
    job = begun(ff.Focus())
    job.play(2)
    old = job.protocol.request("site-0")
    job.restart()
    job.play()
    disk = job.sites[0].disk.path.read_bytes()
    reply = job.sites[0].answer(old, job.grad(0))
    assert header(reply).fields["kind"] == "ahead"
    assert job.sites[0].disk.path.read_bytes() == disk
    assert job.protocol.receive("site-0", reply).status == "refused"
    assert said(job.play()) == {"applied"} and job.protocol.epoch == 1


def test_a_warm_start_behind_its_sites_begins_an_epoch_and_not_a_wait(begun):
    job = begun(ff.Focus(warm_start=True))
    job.play(3)
    job.restart(b"")
    assert said(job.play()) == {"ahead"} and job.protocol.epoch == 2
    assert said(job.play()) == {"applied"}
    assert job.settles(1e-11)


def test_no_site_is_ahead_by_more_epochs_than_there_can_be(begun):
    job = begun(ff.Focus())
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

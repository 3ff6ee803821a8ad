"""Numbers that are far too large, and sites that cannot take part as they are."""

from functools import partial

import numpy as np
import pytest
from wire_job import DIM, EVERY, FAST, NAMES, B, H

import focusfl as ff
from focusfl.engines.protocol.magnitude import Reach, norm, strayed


@pytest.mark.parametrize("algorithm", FAST, ids=repr)
def test_a_gradient_of_1e16_is_refused_and_changes_nothing(algorithm, begun):
    job = begun(algorithm)
    job.play(4)
    receipt = job.spike(1)
    assert receipt.status == "refused" and "the largest of this epoch" in receipt.why
    assert job.settles(1e-11) and job.protocol.epoch == 1


@pytest.mark.parametrize(
    ("algorithm", "first"),
    [*((one, False) for one in EVERY), (ff.Focus(), True), (ff.Scaffnew(), True)],
    ids=repr,
)
def test_a_gradient_of_1e16_that_is_counted_is_mended_by_new_epochs(
    algorithm, first, begun
):
    """Without a guard, or before there is anything to compare with."""
    job = begun(algorithm, max_norm=None if first else float("inf"))
    job.play(0 if first else 4)
    assert job.spike(0, [0]).applied and norm(job.protocol.x) > 1e14
    assert job.settles(1e-8) and job.protocol.epoch > 1


def test_without_new_epochs_it_is_wrong_for_ever(begun, monkeypatch):
    """Why they are: the last digits of what is summed were lost."""
    from focusfl.engines.protocol import magnitude, rules, server

    for module in (server, rules):
        monkeypatch.setattr(module, "strayed", lambda reach, x: "")
    monkeypatch.setattr(magnitude, "is_spike", lambda *_: False)
    job = begun(ff.Focus(), max_norm=float("inf"))
    job.play(4)
    job.spike(0)
    job.play(120)
    assert job.error > 1e-2 and job.protocol.epoch == 1


@pytest.mark.parametrize("algorithm", FAST, ids=repr)
def test_beginnings_and_new_epochs_are_no_spikes(algorithm, begun):
    """At the optimum pushes vanish; those of a new epoch are as large as the first."""
    job = begun(algorithm)
    job.play(30)
    job.protocol.new_epoch()
    job.restart()
    assert {receipt.status for receipt in job.play(5)} == {"applied"}
    assert job.settles(1e-11) and job.protocol.epoch == 2


def test_a_site_that_was_at_rest_may_move(begun):
    """Alone at its own optimum it pushes nothing; when the others come it must."""
    job = begun(ff.Focus())
    job.play(30, [0])
    assert {receipt.status for receipt in job.play(5)} == {"applied"}
    assert job.settles(1e-11)


@pytest.mark.parametrize("local_steps", [1, 2])
def test_a_first_gradient_of_1e16_in_a_warm_start_is_mended(local_steps, begun):
    """With one local step the model does not move, and so is not back from afar."""
    for i in range(3):
        job = begun(ff.Focus(warm_start=True), job=f"job-{i}", local_steps=local_steps)
        job.more[i] = 1e16
        job.play(1, [i])
        job.more[i] = 0
        assert job.settles(1e-8) and 1 < job.protocol.epoch <= 3


def test_who_leaves_after_a_first_gradient_of_1e16_takes_everybodys_digits_along(begun):
    """And so an epoch begins, though the sum may well fall when somebody leaves."""
    job = begun(ff.Focus(warm_start=True))
    job.more[0] = 1e16
    job.play(1)
    job.more[0] = 0
    goodbye = job.sites[0].goodbye(job.protocol.request(NAMES[0]))
    assert job.protocol.receive(NAMES[0], goodbye).applied
    assert job.settles(1e-8) and job.protocol.epoch == 2


def test_what_is_taken_back_is_no_measure_of_what_is_pushed(begun):
    """The goodbyes of FedNova hold counts; beside them all gradients are large."""
    job = begun(ff.FedNova(), params=np.full(DIM, 1e14))
    for i in range(2):
        goodbye = job.sites[i].goodbye(job.protocol.request(NAMES[i]))
        assert job.protocol.receive(NAMES[i], goodbye).applied
    assert [receipt.status for receipt in job.play(2, [2])] == ["applied"] * 2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("resting", [1, 2])
def test_a_job_may_begin_where_a_site_is_at_rest(warm, dtype, resting, begun):
    """What others give is then any number of times larger, in every epoch."""
    job = begun(ff.Focus(warm_start=warm), params=np.zeros(4, dtype))
    job.shift[:resting] = B[:resting] - 1e-7 * (dtype == "float32") - 1e-12
    said = job.play(1, range(resting))
    assert {receipt.status for receipt in said + job.play(40)} == {"applied"}
    assert job.protocol.epoch <= 2 and not job.protocol.barred
    assert norm(job.gradient(job.protocol.x)) < (1e-5 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("codec", [ff.RandomK(0.25), ff.TopK(0.25)], ids=repr)
def test_some_coordinates_may_be_far_larger_than_those_that_were_sent_first(
    codec, begun
):
    """They are sent in a later round: by then they would be taken for a spike."""
    job = begun(ff.Coded(ff.Focus(), codec), lr=0.02)
    job.shift[:, 2] = [1e9, 3e9, -2e9]
    assert {receipt.status for receipt in job.play(60)} == {"applied"}
    assert job.protocol.epoch <= 2 and not job.protocol.barred


def test_a_model_that_only_came_nearer_has_not_strayed():
    ones = np.ones(4)
    assert not strayed(Reach(start=2e8, far=2e8), ones)
    assert not strayed(Reach(start=0.0, far=1e6), ones)
    assert strayed(Reach(start=0.0, far=1e8), ones)
    assert strayed(Reach(start=0.0, far=1e4), ones.astype("float32"))
    assert norm(np.full(4, 1.7e308)) < float("inf")
    assert not strayed(Reach(start=0.0, far=1e8, left=2e8), ones)
    assert not strayed(Reach(start=0.0, far=float("inf")), ones)
    assert norm({"a": np.full(4, 1e300), "b": 0.0}) == pytest.approx(2e300)
    assert norm({}) == 0


@pytest.mark.parametrize("algorithm", FAST, ids=repr)
def test_a_site_without_a_lasting_disk_takes_part_all_the_same(algorithm, begun):
    """After three losses the server keeps its memory, and nobody else's."""
    job, losses = begun(algorithm), []
    unlink = partial(job.sites[2].disk.path.unlink, missing_ok=True)
    play, job.play = job.play, lambda *a: (play(*a), unlink())[0]
    for _ in range(8):
        losses += [r.why for r in job.play() if r.status == "lost"]
    assert len(losses) == 3 and "from now on it is kept here" in losses[-1]
    assert job.settles(1e-11)
    assert job.protocol.epoch == 4 and {*job.protocol.ledger.copies} == {"site-2"}


def test_three_losses_with_a_memory_in_between_are_three_accidents(begun):
    job = begun(ff.Focus())
    for _ in range(4):
        job.play(3)
        job.sites[2].disk.path.unlink()
    assert not job.protocol.ledger.copies and job.protocol.epoch == 4


@pytest.mark.parametrize("copies", [False, True], ids=["epochs", "copies"])
def test_a_site_that_is_refused_time_and_again_is_left_out_until_a_restart(
    copies, begun
):
    job = begun(ff.Focus(), copies=copies)
    job.play(4)
    job.more[2] = 1e16
    said = [receipt.status for receipt in job.play(5)]
    assert said.count("refused") == 5
    assert job.protocol.barred == job.protocol.gone == ("site-2",)
    assert job.protocol.free == tuple(NAMES[:2]) or copies
    job.play(40, [0, 1])
    both = np.linalg.solve(H[:2].sum(0), B[:2].sum(0))
    assert norm(job.protocol.x - both) < 1e-12  # exact for the others
    job.more[2] = 0
    job.restart()
    assert job.protocol.barred == job.protocol.gone == ()
    assert job.settles(1e-11)


def test_the_last_site_is_never_left_out(begun):
    job = begun(ff.Focus())
    job.play(4)
    job.more[:] = 1e16
    job.play(7)
    assert job.protocol.barred == ()


def test_a_site_that_is_ahead_whatever_is_asked_begins_no_more_epochs(begun):
    """As if it took turns with another server."""
    job = begun(ff.Focus())
    job.play()
    while "site-2" in job.protocol.free:
        job.protocol.request("site-2")
        asked, state = job.protocol._requests["site-2"], job.sites[2].disk.load()
        ahead = state._replace(incarnation="another", epoch=job.protocol.epoch)
        reply = job.sites[2]._behind(asked, ahead)
        assert job.protocol.receive("site-2", reply).status == "ahead"
        job.play(1, [0, 1])
    assert job.protocol.barred == ("site-2",) and job.protocol.epoch <= 6

"""Jobs stay exact: what travels, what is kept, who leaves, what may change."""

import logging
import re
import sqlite3

import numpy as np
import pytest
from world.disk import copy_database

import focusfl as ff
from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.protocol.store import check

NAMES = [f"site-{i}" for i in range(3)]
EXACT = [
    ff.Focus(), ff.Focus(memory="last"), ff.Focus(warm_start=True), ff.Scaffold(),
    ff.Scaffold(option=1), ff.FedDyn(), ff.FedLT(), ff.FedADMM(), ff.Scaffnew(),
    ff.TAMUNA(), ff.AnchoredFocus(), ff.TFocus(), ff.TScaffold(),
    ff.AmplifiedScaffold(), ff.Compressed(ff.Focus(), ff.Quantize()),
]  # fmt: skip
WEIGHTS = dict(zip(NAMES, (1.0, 3.0, 0.5), strict=True))


@pytest.mark.parametrize("algorithm", EXACT, ids=repr)
def test_a_job_with_weights_arrives_and_who_leaves_is_forgotten(algorithm, begun):
    """Also where a site leaves whose pushes no algorithm can take back."""
    job = begun(algorithm, weights=WEIGHTS, lr=0.05)
    job.play(9, [0, 1, 2])
    job.play(2, [1])
    leave = job.sites[1].leave(job.server.request(NAMES[1]))
    receipt = job.server.receive(NAMES[1], leave)
    assert receipt.status == "leaving" and job.server.num_clients == 4.5
    assert "is leaving" in job.server.receive(NAMES[1], job.reply(1)).why
    job.play(1, [0, 2])
    assert job.server.gone == (NAMES[1],) and job.server.num_clients == 1.5
    assert job.arrives(1e-8, [0, 2], 1500)
    assert "has left" in job.server.receive(NAMES[1], leave).why
    with pytest.raises(ValueError, match="has left"):
        job.server.request(NAMES[1])


@pytest.mark.parametrize("algorithm", EXACT, ids=repr)
def test_one_vector_travels_each_way_where_the_state_can_be_derived(algorithm, begun):
    job = begun(algorithm)
    job.play(4)
    request = job.server.request(NAMES[0])
    reply = job.sites[0].answer(request, job.grad(0))
    has_after_update = isinstance(algorithm, ff.Scaffnew)
    assert ("state" in request) == has_after_update
    assert ("state" in reply) == algorithm.sends_state


def test_a_site_that_lost_its_cache_says_so_and_is_sent_its_state(begun):
    job = begun(ff.Focus())
    job.play(3)
    job.sites[0].cache.clear()
    assert job.play(1)[0].status == "missing"
    assert "state" in job.server.request(NAMES[0])
    assert {receipt.status for receipt in job.play(2)} == {"applied"}
    assert job.arrives() and job.gap() < 1e-12


def test_a_server_that_is_killed_continues_from_its_last_commit(begun):
    job = begun(ff.Focus())
    job.play(3)
    x, y = job.server.x, job.server.server.y
    late = job.reply(0)
    job.server.receive(NAMES[0], late)
    job.restart()
    assert job.server.round == 3 and job.server.counted == ()
    assert (job.server.x == x).all() and (job.server.server.y == y).all()
    assert job.server.receive(NAMES[0], late).applied  # still from what is current
    assert not job.server.receive(NAMES[0], late).applied
    job.server.close_round()
    assert job.gap() < 1e-15 and job.arrives()


def test_a_restored_backup_continues_though_sites_are_ahead(begun, folder):
    job = begun(ff.Focus())
    job.play(3)
    backup = job.server._store.db.serialize()
    job.play(3)
    ahead = job.reply(2)
    job.server.close()
    path = folder / "job" / "server.db"
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(backup)
    job.server = job.open()
    assert job.server.round == 3
    assert "the current one is" in job.server.receive(NAMES[2], ahead).why
    assert job.arrives() and job.gap() < 1e-12


def test_stale_replies_count_where_the_algorithm_accepts_them(begun):
    for name, algorithm in (("a", ff.Focus()), ("b", ff.Scaffold())):
        job = begun(algorithm, job=name)
        job.play(2)
        late = job.reply(1)
        job.play(3, [0, 2])
        receipt = job.server.receive(NAMES[1], late)
        assert receipt.applied == algorithm.accepts_stale_model
        assert receipt.applied or "another model" in receipt.why
        job.play(1, [0])
        assert job.gap() < 1e-14 and job.arrives()


def test_a_warm_up_ends_when_everybody_was_heard(begun):
    job = begun(ff.Focus(warm_start=True))
    x = job.server.x
    job.play(2, [0])
    assert job.server.warming and job.server.round == 0
    assert job.server.free == (NAMES[1], NAMES[2])
    job.restart()  # what was heard is committed
    assert job.server.free == (NAMES[1], NAMES[2])
    job.play(1, [1])
    assert job.server.close_round() is None
    job.play(1, [2])
    assert not job.server.warming and (job.server.x == x).all()
    assert job.calls == [1, 1, 1] and job.gap() < 1e-15
    assert job.arrives()


def test_rounds_without_anybody(begun):
    skip, step = begun(ff.MIFA(), job="a"), begun(ff.MIFA(), job="b", on_empty="step")
    for job in (skip, step):
        job.play(2)
    xs = [job.server.x for job in (skip, step)]
    for job in (skip, step):
        job.server.close_round()
        assert job.server.round == 3
    assert (skip.server.x == xs[0]).all() and not (step.server.x == xs[1]).all()


def test_a_new_generation_empties_all_states_and_keeps_the_model(begun):
    job = begun(ff.Focus())
    job.play(4)
    x = job.server.x
    job.server.receive(NAMES[0], job.reply(0))
    job.server.new_generation()
    assert (job.server.x == x).all() and not job.server.server.y.any()
    assert job.server.generation == 2 and job.server.counted == ()
    assert not any(state.grad.any() for _, state in job.server.states())
    job.restart()
    assert job.server.generation == 2 and job.arrives()


def test_batches_are_numbered_by_what_was_counted(begun):
    job, numbers = begun(ff.Focus()), []
    for count in (True, False, True, True):
        reply = job.sites[0].answer(
            job.server.request(NAMES[0]), job.grad(0),
            lambda number: numbers.append(number) or number,
        )  # fmt: skip
        if count:
            assert job.server.receive(NAMES[0], reply).applied
            job.server.close_round()
    assert numbers == [0, 1, 2, 3, 2, 3, 4, 5]


def test_one_process_at_a_time_and_one_job_in_a_folder(begun, folder):
    job = begun(ff.Focus())
    job.play(1)
    with pytest.raises(ValueError, match="in use by another process"):
        job.open()
    job.server.close()
    with pytest.raises(ValueError, match="is another job"):
        ProtocolServer(ff.MIFA(), np.zeros(4), NAMES, folder, job="job", lr=0.2)
    with pytest.raises(ValueError, match=r"lr was 0.2 and is now 0.1.*changed='accept'"):
        job.open(lr=0.1)
    job.server = job.open(lr=0.1, changed="accept")
    assert job.server.round == 1
    (folder / "damaged").mkdir()
    (folder / "damaged" / "server.db").write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match="damaged or no job"):
        job.open(job="damaged")


def test_the_database_is_its_owners_alone(begun, folder):
    begun(ff.Focus())
    assert (folder / "job").stat().st_mode & 0o077 == 0


def test_the_last_site_stays(begun):
    job = begun(ff.Focus())
    job.play(1)
    job.server.remove(NAMES[0])
    job.server.remove(NAMES[1])
    leave = job.sites[2].leave(job.server.request(NAMES[2]))
    assert "last site" in job.server.receive(NAMES[2], leave).why
    job.server.remove(NAMES[2])
    assert job.server.gone == (NAMES[0], NAMES[1])
    with pytest.raises(ValueError, match="unknown site 'nobody'"):
        job.server.remove("nobody")


def test_a_model_of_nested_dicts_and_its_names(begun, folder):
    x0 = {"a/b": np.ones(2, "float32"), "c%": {"d": np.ones((2, 1))}}
    grad = lambda x, batch: x  # noqa: E731
    with ProtocolServer(ff.FedADMM(), x0, ["a"], folder, job="j", lr=0.1) as server:
        site = Site(ff.FedADMM(), "j", "a")
        for _ in range(3):
            assert server.receive("a", site.answer(server.request("a"), grad)).applied
            server.close_round()
        assert server.x["a/b"].dtype == "float32" and server.x["c%"]["d"].shape == (
            2,
            1,
        )
    with pytest.raises(ValueError, match="floating point"):
        ProtocolServer(ff.Focus(), np.zeros(2, int), ["a"], folder, job="k", lr=0.1)


def test_a_million_names_need_no_states_of_their_own(folder):
    """Newcomers share one: what a job costs on disk grows with who took part."""
    names = [f"site-{i}" for i in range(20_000)]
    with ProtocolServer(ff.Focus(), np.zeros(1000), names, folder, job="j", lr=0.1):
        pass
    assert (folder / "j" / "server.db").stat().st_size < 5e6


def test_what_diverges_is_dropped_with_its_round(begun):
    job = begun(ff.Focus(), lr=1e200, max_norm=float("inf"), local_steps=1)
    job.play(1)
    x = job.server.x
    job.more[:] = 1e150
    for i in range(3):
        job.server.receive(NAMES[i], job.sites[i].answer(
            job.server.request(NAMES[i]), lambda x, batch: np.full(4, 1e150)
        ))  # fmt: skip
    with pytest.raises(ArithmeticError, match="Lower lr"):
        job.server.close_round()
    assert (job.server.x == x).all() and job.server.counted == ()


# Magnitude


@pytest.mark.parametrize("algorithm", [ff.Focus(), ff.Scaffold(), ff.FedLT()], ids=repr)
def test_a_gradient_of_1e16_is_refused_and_changes_nothing(algorithm, begun):
    job = begun(algorithm)
    job.play(4)
    job.more[1] = 1e16
    receipt = job.play(1)[1]
    assert receipt.status == "refused" and "the largest so far" in receipt.why
    job.more[1] = 0
    assert job.arrives() and job.server.generation == 1


@pytest.mark.parametrize("size", [1e16, 1e300])
@pytest.mark.parametrize("algorithm", [
    ff.Focus(), ff.Focus(memory="last"), ff.Focus(warm_start=True), ff.Scaffold(), ff.MIFA(),
    ff.Scaffold(option=1), ff.Compressed(ff.Focus(), ff.TopK(0.5)),
], ids=repr)  # fmt: skip
def test_a_first_push_that_would_carry_the_model_away_is_refused(algorithm, size, begun):
    """There is no other push to compare it with."""
    job = begun(algorithm, local_steps=1)  # MIFA is not exact with more
    job.more[1] = size
    receipt = job.play(1, [1])[0]
    assert receipt.status == "refused" and "carry the model away" in receipt.why
    job.more[1] = 0
    assert job.arrives(1e-8) and job.server.generation == 1


@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
@pytest.mark.parametrize("algorithm", EXACT, ids=repr)
def test_a_gradient_of_1e16_that_was_counted_is_repaired(algorithm, first, begun):
    """The operator has set no limit."""
    job = begun(algorithm, max_norm=float("inf"), lr=0.1)
    job.play(0 if first else 4)
    job.more[0] = 1e16
    assert job.play(1, [0])[0].applied
    job.more[0] = 0
    assert job.arrives(1e-8, rounds=2500)


def test_a_site_that_is_refused_time_and_again_is_left_out_until_a_restart(begun):
    job = begun(ff.Focus())
    job.play(4)
    job.more[2] = 1e16
    assert [r.status for r in job.play(5)].count("refused") == 5
    assert job.server.barred == job.server.gone == (NAMES[2],)
    assert job.arrives(1e-12, [0, 1])  # exact for the others
    job.more[2] = 0
    job.restart()
    assert job.server.gone == () and job.server.num_clients == 3
    assert job.arrives()
    job.more[:] = 1e16
    job.play(7)
    assert job.server.barred == ()  # never all of them


def test_a_site_that_was_at_rest_may_move(begun):
    job = begun(ff.Focus())
    job.play(60, [0])
    assert {receipt.status for receipt in job.play(5)} == {"applied"}
    assert job.arrives()


def test_max_norm(begun):
    job = begun(ff.Focus(), max_norm=1.0, params=np.full(4, 9.0))
    assert "at most 1 may pass" in job.play(1)[0].why


def test_replies_of_strangers_are_refused_and_logged(begun, caplog):
    job = begun(ff.Focus())
    good = job.reply(1)
    with caplog.at_level(logging.WARNING):
        for sender in (NAMES[0], "stranger", "b\nfaked log line", ""):
            assert job.server.receive(sender, good).status == "refused"
    assert len(caplog.messages) == 4
    assert not any("\n" in line for line in caplog.messages)
    assert sqlite3.sqlite_version_info >= (3, 24)


def test_a_flipped_bit_in_a_state_is_seen(begun, folder):
    job = begun(ff.Focus())
    job.play(2)
    job.server.close()
    path = folder / "job" / "server.db"
    check(path)
    blob = bytearray(path.read_bytes())
    for found in re.finditer(b'{"grad"', bytes(blob)):
        blob[found.start() + 70] ^= 1  # in the array that follows
    path.write_bytes(blob)
    with pytest.raises(ValueError, match="damaged"):
        check(path)


def test_a_backup_of_a_running_server(begun, folder):
    job = begun(ff.Focus())
    job.play(3)
    backup, path = folder / "backup.db", folder / "job" / "server.db"
    job.server.receive(NAMES[0], job.reply(0))  # not committed, and so not copied
    copy_database(path, backup)
    job.play(2)
    job.server.close()
    copy_database(backup, path)
    job.server = job.open()
    assert job.server.round == 3 and job.gap() < 1e-14 and job.arrives()


@pytest.mark.parametrize("bound", [None, 3.0])
@pytest.mark.parametrize(
    "algorithm",
    [
        ff.Focus(), ff.Focus(memory="last"), ff.Scaffold(), ff.Scaffold(option=1), ff.MIFA(),
        ff.FedDyn(),
    ],
    ids=repr,
)  # fmt: skip
def test_small_pushes_of_one_site_do_not_add_up_past_max_memory(begun, algorithm, bound):
    """Each is as large as max_norm allows. The others go on without that site, exactly."""
    job = begun(algorithm, max_norm=2.5, max_memory=bound, local_steps=1)
    honest, pushes, largest = job.grad, [], 0.0
    for k in range(1, 31):
        creep = np.array([1.9 * k, 0, 0, 0])
        job.grad = lambda i, creep=creep: (lambda x, batch: creep) if i == 0 else honest(i)
        pushes += job.play(1)
        (memory,) = algorithm.tracked(None, job.server.state(NAMES[0])).values()
        largest = max(largest, np.linalg.norm(memory))
    if bound is None:
        assert {push.status for push in pushes} == {"applied"}
        assert largest > 50 and job.error([1, 2]) > 1
    else:
        assert largest <= bound
        assert any("at most 3 may stay" in push.why for push in pushes)
        assert job.server.barred == (NAMES[0],) and job.arrives(ids=[1, 2])


def test_max_memory_refuses_no_site_that_stays_below_it(begun):
    for k, algorithm in enumerate((ff.Focus(), ff.Scaffold(), ff.MIFA())):
        plain, bounded = begun(algorithm, job=f"plain{k}"), begun(algorithm, job=f"bounded{k}")
        bounded.restart(max_memory=1e3)
        for job in (plain, bounded):
            assert {push.status for push in job.play(30)} == {"applied"}
        assert np.array_equal(plain.server.x, bounded.server.x)


@pytest.mark.parametrize(
    "algorithm",
    [ff.FedAvg(), ff.FedADMM(), ff.Scaffnew(), ff.Compressed(ff.Focus(), ff.Quantize())],
)
def test_max_memory_is_refused_where_it_could_not_be_kept(begun, algorithm):
    with pytest.raises(ValueError, match="max_memory needs an algorithm"):
        begun(algorithm, max_memory=1.0)
    with pytest.raises(ValueError, match="max_memory must be positive"):
        begun(ff.Focus(), max_memory=0)

"""Latencies: seconds by hand, who is in time, and who is asked in vain."""

import numpy as np
import pytest

import focusfl as ff
from focusfl.participation import Async, Bernoulli, LatencyModel, Sync, masks, schedule
from focusfl.participation.latency import Presence, Work

WORK = [2, 1e6, 2e6]  # local steps, bytes down, bytes up
FOUR = LatencyModel(compute=[1, 2, 3, 4])


def seconds(law, clients, rounds):
    return law.timing(ff.Focus(), clients, rounds, seed=0)["seconds"][1:]


def test_a_reply_takes_what_its_parts_take():
    clock = LatencyModel(compute=0.5, up=16, down=8, latency=[0.1, 0.3])
    pace = clock.pace(2, Work(*WORK))
    # 8 Mbit at 8 Mbit/s down, 16 Mbit at 16 Mbit/s up, two steps of half a second
    assert pace.takes(np.arange(2), np.ones(2)) == pytest.approx([3.1, 3.3])


def test_a_law_over_clients_has_its_median_and_stays_with_its_seed():
    law = {"median": 3.0, "sigma": 0.5}
    one, same, other = (
        LatencyModel(compute=law, seed=s).pace(4001, Work(1, 0, 0)).compute for s in (0, 0, 1)
    )
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert np.median(one) == pytest.approx(3, rel=0.05)
    assert np.std(np.log(one)) == pytest.approx(0.5, rel=0.05)


def test_a_round_is_as_long_as_its_slowest_reply():
    law = Sync(FOUR, among=Bernoulli(0.5), work=[1, 0, 0])
    drawn = masks(law, 4, 100, seed=0)
    slowest = [max(np.arange(1, 5)[row], default=0) for row in drawn]
    assert seconds(law, 4, 100) == pytest.approx(slowest)
    assert not law.timing(ff.Focus(), 4, 100, 0)["lost"].any()


def test_a_deadline_drops_who_is_late_and_says_how_many():
    law = Sync(FOUR, deadline=2.5, work=[1, 0, 0])
    assert masks(law, 4, 3, 0).tolist() == [[True, True, False, False]] * 3
    spent = law.timing(ff.Focus(), 4, 3, 0)
    assert spent["seconds"].tolist() == [0, 2.5, 2.5, 2.5]
    assert spent["lost"].tolist() == [0, 2, 2, 2]


def test_over_selection_takes_the_first_of_those_asked():
    law = Sync(FOUR, select=3, take=2, work=[1, 0, 0])
    drawn = list(schedule(law, 4, 200, seed=0))
    assert {len(ids) for ids in drawn} == {2}
    assert seconds(law, 4, 200) == pytest.approx([ids[-1] + 1 for ids in drawn])
    assert 3 not in np.concatenate(drawn)  # never among the first two of three


def test_replies_arrive_in_the_order_of_their_times():
    law = Async(LatencyModel(compute=[1.0, 2.5]), work=[1, 0, 0])
    assert [ids[0] for ids in schedule(law, 2, 7, 0)] == [0, 0, 1, 0, 0, 0, 1]
    assert np.cumsum(seconds(law, 2, 7)).tolist() == [1, 2, 2.5, 3, 4, 5, 5]


def test_how_often_a_client_is_heard_follows_its_speed():
    law = Async(LatencyModel(compute=[1, 2, 4, 8], jitter=0.5), work=[1, 0, 0])
    found = law.marginals(4)
    expected = 1 / np.array([1, 2, 4, 8])
    assert found.p == pytest.approx(expected / expected.sum(), abs=0.03)
    assert found.q == pytest.approx(found.p)


def test_work_waits_while_a_phone_is_away_and_slows_with_it():
    presence = Presence(np.array([[0.0], [1.0], [0.5]]), grid=10.0)
    # Away until 10, at full speed until 20, at half until 30, and again: 15 a lap.
    for begun, work, done in [
        (0, 4, 14), (12, 8, 20), (12, 10, 24), (25, 2.5, 30), (25, 3, 40.5), (0, 33, 73)
    ]:  # fmt: skip
        assert presence.finish(0, float(begun), float(work)) == pytest.approx(done)


def test_a_round_asks_who_is_there_and_waits_where_nobody_is():
    trace = [[1, 0], [0, 0], [0, 1]]
    law = Sync(LatencyModel(compute=10, trace=trace, grid=10), work=[1, 0, 0])
    assert [ids.tolist() for ids in schedule(law, 2, 3, 0)] == [[0], [], [1]]
    assert np.cumsum(seconds(law, 2, 3)).tolist() == [10, 20, 30]


def test_who_leaves_within_a_round_is_late():
    trace = [[1, 0], [0, 0], [0, 1]]
    clock = LatencyModel(compute=4, trace=trace, grid=10)
    law = Sync(clock, deadline=9, work=[1, 0, 0])
    drawn = [ids.tolist() for ids in schedule(law, 2, 5, 0)]
    assert drawn == [[0], [0], [], [], [1]]  # asked at 8, gone at 10
    assert np.cumsum(seconds(law, 2, 5)).tolist() == [4, 8, 17, 26, 30]


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: LatencyModel(compute=[1, -2, 3]), "compute .* -2.0 for client 1"),
        (lambda: LatencyModel(up=[1, 0]), "up must be positive; got 0.0 for client 1"),
        (lambda: LatencyModel(latency=[1, np.nan]), "latency .* nan for client 1"),
        (lambda: LatencyModel(compute={"median": 1}), "compute .* median and sigma"),
        (lambda: LatencyModel(compute={"median": -1, "sigma": 1}), "compute: median"),
        (lambda: LatencyModel(trace=[1, 0]), "trace must be a .times, devices. matrix"),
        (lambda: LatencyModel(trace=[[1, -2]]), "trace .* -2.0 at time 0, device 1"),
        (
            lambda: LatencyModel(trace=[[1, 1]]).check(3),
            "trace .* 2 devices for 3 clients",
        ),
        (
            lambda: LatencyModel(trace=[[1, 0]]).check(2),
            "1 of the first .* devices of the trace are never there: 1",
        ),
        (lambda: FOUR.check(5), "compute must have one entry per client; got 4 for 5"),
        (lambda: Sync({"compute": 1, "speed": 2}), "latency: unknown part: 'speed'"),
        (lambda: Sync(FOUR, work=[1, 2]), "work must be local steps, bytes down and"),
        (lambda: Sync(FOUR, select=2, take=3).check(4), "take must be at most 2"),
        (lambda: list(schedule(Sync(FOUR), 4, 1, 0)), "Sync must know what a reply"),
        (lambda: Async(FOUR, replies=5).check(4), "replies must not be more than"),
        (
            lambda: list(schedule(Async(LatencyModel(), work=[1, 0, 0]), 2, 1, 0)),
            "latency must give every reply .* client 0 takes none",
        ),
    ],
)
def test_clocks_that_make_no_sense_are_refused_in_one_line(make, words):
    with pytest.raises(ValueError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)

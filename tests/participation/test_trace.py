"""Traces: small ones by hand, and the real phones where FOCUSFL_DATA has them."""

import gzip
import json

import numpy as np
import pytest

from focusfl.participation import Trace, from_events, masks

SMALL = [[-1, 1, 0], [1, -1, 0], [-1, 0, 0], [0, -1, 1]]


def test_unknown_is_away():
    assert masks(Trace(SMALL), 3, 4, seed=0).astype(int).tolist() == [
        [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1],
    ]  # fmt: skip


def test_unknown_holds_the_last_known_state():
    assert masks(Trace(SMALL, "hold"), 3, 4, seed=0).astype(int).tolist() == [
        [0, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1],
    ]  # fmt: skip


def test_times_last_several_rounds_and_come_again():
    once = masks(Trace(SMALL), 3, 4, seed=0)
    drawn = masks(Trace(SMALL, rounds_per_step=3), 3, 3 * 9, seed=0)
    assert np.array_equal(drawn, np.repeat(np.concatenate([once, once, once[:1]]), 3, 0))


def test_without_wrapping_a_trace_ends():
    law = Trace(SMALL, rounds_per_step=2, wrap=False)
    assert len(masks(law, 3, 8, seed=0)) == 8
    with pytest.raises(ValueError, match="holds 8 rounds; round 8 was asked for"):
        masks(law, 3, 9, seed=0)


def test_clients_are_the_first_devices_that_are_ever_there():
    avail = np.array([[0, 1, -1, 1, 1], [0, 0, 0, 1, 0]])
    with pytest.raises(ValueError, match=r"2 of the first 4 .* never there: 0, 2\. Use"):
        Trace(avail).check(4)
    drawn = masks(Trace(avail, drop_absent=True), 2, 2, seed=0)
    assert np.array_equal(drawn, [[True, True], [False, True]])
    with pytest.raises(ValueError, match="got 3 devices that are ever there for 4"):
        Trace(avail, drop_absent=True).check(4)


def test_a_trace_is_read_from_a_file(tmp_path, monkeypatch):
    np.savez(tmp_path / "trace.npz", avail=np.array(SMALL, np.int8))
    monkeypatch.setenv("TRACES", str(tmp_path))
    for path in (tmp_path / "trace.npz", "$TRACES/trace.npz"):
        assert np.array_equal(Trace(path).avail, SMALL)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: Trace([1, 0]),
            r"avail must be a \(times, devices\).* got shape \(2,\)",
        ),
        (lambda: Trace([[2, 0]]), "avail must be"),
        (lambda: Trace([[]]), r"got shape \(1, 0\)"),
        (lambda: Trace(SMALL, "there"), "one of away, hold, error; got 'there'"),
        (lambda: Trace(SMALL, "error"), "4 unknown .* first is time 0, device 0"),
        (lambda: Trace(SMALL, rounds_per_step=0), "rounds_per_step must be a whole"),
        (lambda: Trace(SMALL).check(4), "got 3 devices for 4 clients"),
        (lambda: Trace("nowhere.npz"), "cannot read nowhere.npz"),
        (lambda: Trace(__file__), "cannot read .*test_trace.py as an .npz file"),
        (lambda: from_events({}), "no events"),
        (lambda: from_events({"7": {}}), "must look like"),
        (lambda: from_events(LOGS, start="2020-01-03"), "end must not be before start"),
        (lambda: from_events("nowhere.json"), "cannot read nowhere.json"),
        (
            lambda: from_events({"7": {"messages": "2020-01-01 00:00:00 \tphone_off"}}),
            "device 7: .*phone_off' is not .* known event. Known: screen_off",
        ),
        (
            lambda: from_events({"7": {"messages": "noon\twifi"}}),
            "device 7 has a time that is not YYYY-mm-dd HH:MM:SS",
        ),
    ],
)
def test_impossible_traces_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def log(*events):
    lines = (f"2020-01-01 {time} \t{event}" for time, event in events)
    return {"messages": "\n".join(lines) + "\n"}


LOGS = {
    "a": log(  # becomes known bit by bit
        ("08:01:00", "screen_off"),
        ("08:01:00", "wifi"),
        ("08:45:00", "99.0%"),
        ("09:10:00", "battery_charged_on"),
        ("10:00:00", "4G"),
        ("10:40:00", "wifi"),
        ("11:30:01", "80.0%"),
    ),
    "b": log(  # lit but locked is idle; one thing known to be missing is enough
        ("08:00:00", "battery_charged_on"),
        ("08:00:00", "screen_lock"),
        ("08:00:00", "wifi"),
        ("08:20:00", "screen_on"),
        ("08:40:00", "screen_unlock"),
        ("09:20:00", "screen_off"),
        ("09:40:00", "battery_charged_off"),
        ("10:10:00", "battery_charged_on"),
        ("10:50:00", "Unknown"),
    ),
    "c": log(("09:05:00", "battery_charged_off"), ("09:59:59", "3G")),
}


def test_events_become_availability():
    avail = from_events(LOGS)
    assert avail.T.tolist() == [
        # 8:00, 8:30, ...                            11:30
        [-1, -1, -1, 1, 0, 0, 1, 1],
        [1, 1, 0, 1, 0, 1, -1, -1],
        [-1, -1, -1, 0, -1, -1, -1, -1],
    ]


def test_the_grid_and_its_ends_can_be_chosen():
    fine = from_events(LOGS, 10)
    assert np.array_equal(fine[::3], from_events(LOGS))
    part = from_events(LOGS, 30, "2020-01-01 09:10", "2020-01-01 10:00")
    assert np.array_equal(part, from_events(LOGS)[2:5])


def test_the_order_of_lines_does_not_matter(tmp_path):
    turned = {
        name: {"messages": "\n".join(record["messages"].splitlines()[::-1])}
        for name, record in LOGS.items()
    }
    (tmp_path / "logs.json").write_text(json.dumps(turned))
    with gzip.open(tmp_path / "logs.json.gz", "wt") as file:
        json.dump(turned, file)
    for path in (tmp_path / "logs.json", str(tmp_path / "logs.json.gz")):
        assert np.array_equal(from_events(path), from_events(LOGS))


def test_real_phones_are_there_as_often_as_the_trace_says(real_data):
    law = Trace(
        str(real_data / "flash_availability_723dev_30min.npz"), drop_absent=True
    )  # 211 of the 723 are never there
    drawn = masks(law, 500, 241, seed=0)
    stated = law.marginals(500)
    assert np.allclose(stated.p, drawn.mean(0), rtol=0, atol=1e-12)
    assert 0.05 < stated.p.mean() < 0.15 and stated.p.min() > 0


# The 31 of the 100 phones that the makers of the table left out, for want of data.
LEFT_OUT = (
    "2 5 6 9 10 12 16 22 28 29 34 37 39 48 53 55 58 62 63 66 68 70 72 82 84 87 90 91 92 93 97"
).split()


def test_real_logs_give_the_table_made_from_them(real_data):
    table = np.load(real_data / "flash_availability_723dev_30min.npz")["avail"]
    with gzip.open(real_data / "flash_state_traces_100dev.json.gz", "rt") as file:
        logs = {k: v for k, v in json.load(file).items() if k not in LEFT_OUT}
    table = table[:, : len(logs)]  # the same phones in the same order
    window = {"start": "2020-01-29", "end": "2020-02-03"}
    known = table >= 0

    # Its makers looked at the screen, not at the lock, and overlooked 3G and 4G.
    overlooked = ("screen_lock", "screen_unlock", "3G", "4G")
    theirs = {
        name: {
            "messages": "\n".join(
                line
                for line in record["messages"].splitlines()
                if line.split("\t")[-1].strip() not in overlooked
            )
        }
        for name, record in logs.items()
    }
    assert np.array_equal(from_events(theirs, **window)[known], table[known])

    ours = from_events(logs, **window)
    assert np.mean(ours[known] == table[known]) > 0.99
    assert np.mean(ours >= 0) > 0.8

"""Secure sums: what the server learns, what counts, and what is refused."""

import numpy as np
import pytest

import focusfl as ff
from focusfl.flower.protocol import Refused, Site
from focusfl.flower.protocol.messages import load_flat, paths
from focusfl.flower.secure import Failed, Secure, SecureServer, SecureSite
from focusfl.flower.secure.held import read_parts
from focusfl.flower.secure.numbers import to_numbers, to_push
from focusfl.flower.secure.policy import fixed_point
from secure.job import (
    ALGORITHM,
    DIM,
    NAMES,
    SECURE,
    B,
    N,
    answer,
    error,
    gap,
    open_server,
    open_site,
    play,
)  # fmt: skip


@pytest.fixture
def begun(folder):
    with open_server(folder / "server") as server:
        yield server, [open_site(folder / "sites", i) for i in range(N)]


def test_focus_arrives_below_1e_10_with_sums_alone(begun):
    server, sites = begun
    for _ in range(15):
        assert play(server, sites) == tuple(NAMES)
    assert error(server) < 1e-10


@pytest.mark.parametrize("stage", ["keys", "shares", "push", "unmask"])
def test_a_site_that_vanishes_in_a_stage_blocks_nobody_and_stays_exact(begun, stage):
    server, sites = begun
    for r in range(16):
        out = NAMES[r % N]
        counted = play(server, sites, silent=[(stage, out)] if r < 4 else ())
        stays = r >= 4 or stage == "unmask"  # its push was there before it vanished
        assert (out in counted) == stays
        assert gap(server, sites) < 1e-12
    assert error(server) < 1e-10


def test_the_server_has_the_exact_sum_of_those_who_stayed(begun):
    server, sites = begun
    play(server, sites, silent=[("push", NAMES[0])])
    step = 2.0**-44
    rounded = np.floor(-B[1:] / step + 0.5) * step
    np.testing.assert_array_equal(server.server.y, rounded.sum(0))


def test_sums_of_whole_numbers_wrap_and_come_back():
    compressor, up = (
        ff.FixedPoint(50, 44),
        {"b": np.ones(2), "a": {"c": -np.ones((2, 2))}},
    )
    numbers = to_numbers(dict(paths(up)), compressor)
    masks = np.array([2**64 - 1, 5, 0, 1, 2**63, 7], "<u8")
    with np.errstate(all="ignore"):
        back = to_push(3 * numbers + masks - masks, up, compressor)
    np.testing.assert_array_equal(back["b"], 3 * np.ones(2))
    np.testing.assert_array_equal(back["a"]["c"], -3 * np.ones((2, 2)))
    with pytest.raises(ValueError, match="not made of multiples"):
        to_numbers({"y": np.array([0.1])}, compressor)


def test_no_push_is_in_what_a_site_says_nor_in_what_the_server_writes(begun, folder):
    server, sites = begun
    said, pushes = [], []
    for r in range(3):
        server.begin(NAMES)
        while server.session:
            for name in server.free:
                site = sites[NAMES.index(name)]
                reply = answer(site, server.request(name))
                said.append(b"".join(reply.values()))
                if server.session.stage == "push":
                    base, sent = server._row(name).version, {}
                    for version, blob in read_parts(site.path("state")).items():
                        own = load_flat(blob)
                        sent[version == base] = own["inner/grad"] - own["unsent/y"]
                    push = (sent[False] - sent[True]) * 2.0**44
                    pushes.append(np.round(push) * 2.0**-44)
                if (r, server.session.stage, name) != (1, "push", NAMES[2]):
                    assert server.receive(name, reply).applied
            server.advance()
        server.close_round()
    files = [p.read_bytes() for p in (folder / "server").rglob("*") if p.is_file()]
    assert len(pushes) == 3 * N and files
    for push in pushes:
        whole = to_numbers({"y": push}, fixed_point(ALGORITHM))
        for number in (*push, *whole):  # not even one of its numbers
            assert not any(number.tobytes() in blob for blob in [*said, *files])


def test_a_killed_server_has_counted_nothing_of_a_session_that_was_open(folder):
    sites = [open_site(folder / "sites", i) for i in range(N)]
    for stages in range(4):
        with open_server(folder / "server") as server:
            play(server, sites)
            server.begin(NAMES)
            for _ in range(stages):
                for name in server.free:
                    server.receive(name, answer(sites[NAMES.index(name)], server.request(name)))
                server.advance()
        with open_server(folder / "server") as server:
            assert gap(server, sites) < 1e-12
            assert server.round == stages + 1


def test_a_lost_state_begins_a_generation_and_the_end_is_exact(begun):
    server, sites = begun
    play(server, sites)
    sites[1].path("state").unlink()
    server.begin(NAMES)
    statuses = set()
    while server.session:
        for name in server.free:
            reply = answer(sites[NAMES.index(name)], server.request(name))
            statuses.add(server.receive(name, reply).status)
        server.advance()
    server.close_round()
    assert statuses == {"applied", "missing"} and server.generation == 2
    for _ in range(15):
        play(server, sites)
    assert error(server) < 1e-10


def test_a_site_that_loses_its_memory_time_and_again_is_left_out(begun):
    server, sites = begun
    for _ in range(12):
        sites[1].path("state").unlink(missing_ok=True)
        server.begin([name for name in NAMES if name not in server.gone])
        while server.session:
            for name in server.free:
                reply = answer(sites[NAMES.index(name)], server.request(name))
                server.receive(name, reply)
            server.advance()
        server.close_round()
    assert server.barred == (NAMES[1],)


def test_a_site_leaves_and_a_generation_begins_without_it(begun):
    server, sites = begun
    for _ in range(3):
        play(server, sites)
    server.begin(NAMES)
    while server.session:
        for name in server.free:
            site, request = sites[NAMES.index(name)], server.request(name)
            reply = site.leave(request) if name == NAMES[0] else answer(site, request)
            assert server.receive(name, reply).status in ("applied", "leaving")
        server.advance()
    server.close_round()
    assert server.gone == (NAMES[0],) and server.generation == 2


def test_too_few_sites_come_to_no_sum(begun):
    server, sites = begun
    server.begin(NAMES[:2])
    for name in NAMES[:2]:
        server.receive(name, answer(sites[NAMES.index(name)], server.request(name)))
    with pytest.raises(Failed, match="2 of 2 sites answered to keys; at least 3 must"):
        server.advance()
    assert server.session is None and not server.counted


def test_a_site_refuses_a_lying_server(begun):
    """Plain requests, sums of too few, and a second set of sites to open."""
    server, sites = begun
    with pytest.raises(Refused, match="secure sums alone"):
        answer(sites[0], super(SecureServer, server).request(NAMES[0]))
    server.begin(NAMES)
    for name in NAMES:
        server.receive(name, answer(sites[NAMES.index(name)], server.request(name)))
    server.advance()
    server.session.public = {n: server.session.public[n] for n in NAMES[:2]}
    with pytest.raises(Refused, match="it is of 2 sites; at least 3"):
        answer(sites[0], server.request(NAMES[0]))
    play(server, sites)
    server.begin(NAMES)
    while server.session.stage != "unmask":
        for name in server.free:
            server.receive(name, answer(sites[NAMES.index(name)], server.request(name)))
        server.advance()
    answer(sites[0], server.request(NAMES[0]))
    server.session.sent.clear()
    del server.session.masked[NAMES[3]]
    with pytest.raises(Refused, match="out of turn"):
        answer(sites[0], server.request(NAMES[0]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"secure": Secure(threshold=5)},
            "threshold .* at most the number of sites, 4; got 5",
        ),
        (
            {"secure": Secure(minimum=9)},
            "minimum .* at most the number of sites, 4; got 9",
        ),
        ({"secure": Secure(threshold=2)}, "more than half of 4 sites"),
        ({"secure": 3}, "secure must be a Secure; got 3"),
        ({"max_norm": 1.0}, "max_norm needs single pushes"),
        ({"weights": dict.fromkeys(NAMES, 2.0)}, "weights needs single pushes"),
        ({"algorithm": ff.Focus()}, r"must be Compressed\(..., FixedPoint"),
        (
            {"algorithm": ff.Compressed(ff.Focus())},
            r"must be Compressed\(..., FixedPoint",
        ),
        (
            {"algorithm": ff.Compressed(ff.Focus(warm_start=True), ff.FixedPoint(40, 30))},
            "Give warm_start=False",
        ),
        (
            {"algorithm": ff.Compressed(ff.TFocus(), ff.FixedPoint(40, 30))},
            "single number",
        ),
        (
            {"algorithm": ff.Compressed(ff.Scaffnew(), ff.FixedPoint(40, 30))},
            "answer changes",
        ),
    ],
)
def test_what_cannot_be_summed_in_secret_is_refused_in_one_line(folder, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        open_server(folder / "server", **options)
    assert "\n" not in str(caught.value)
    assert not (folder / "server").exists()


def test_sums_of_one_are_refused_where_they_are_asked_for():
    for name in ("minimum", "threshold"):
        with pytest.raises(ValueError, match=f"{name} must be at least 2"):
            Secure(**{name: 1})
    with pytest.raises(ValueError, match="FixedPoint"):
        SecureSite(ff.Focus(), "job", "a", folder="nowhere", secure=SECURE)


def test_numbers_that_could_overflow_are_refused():
    wide = ff.Compressed(ff.Focus(), ff.FixedPoint(53, 40))
    with pytest.raises(ValueError, match="do not fit 64"):
        SECURE.check(wide, {"y": np.zeros(DIM)}, 2**11)
    assert issubclass(SecureSite, Site)

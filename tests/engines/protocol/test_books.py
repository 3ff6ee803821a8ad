"""The server's books: lines for very many sites, and the ledger before the last."""

import errno
import os
from unittest.mock import patch

import numpy as np
import pytest

import focusfl as ff
from focusfl.engines.protocol import ProtocolServer, Refused, Site, books, files
from focusfl.engines.protocol.entries import GONE, Entries, Roster
from focusfl.engines.protocol.ledger import Entry
from focusfl.experiment.verify import verify

NAMES = tuple(f"site-{i}" for i in range(60))


@pytest.fixture
def few(monkeypatch):
    """A ledger that holds four lines itself."""
    monkeypatch.setattr(books, "MOST", 4)


def opened(folder, names=NAMES, **options):
    options = {"job": "job", "lr": 0.1, **options}
    return ProtocolServer(ff.Focus(), np.ones(2), names, folder, **options)


def play(protocol, folder, names):
    for name in names:
        site = Site(ff.Focus(), folder / "sites", "job", name)
        reply = site.answer(protocol.request(name), lambda x, batch: 0.1 * x)
        assert protocol.receive(name, reply).applied
    protocol.close_round()


def lines_in(folder):
    return {path.name for path in (folder / "job").glob("server.*.lines")}


def lived(protocol, folder, rounds):
    """Rounds of three sites each, and a goodbye; what the books say after each."""
    said = []
    for r in range(rounds):
        play(protocol, folder, [NAMES[(7 * r + k) % len(NAMES)] for k in range(3)])
        said.append(dict(protocol.ledger.entries))
    return said


# In memory.


def test_an_older_value_stays_what_it_was_whatever_becomes_of_the_newer():
    values, wanted = [Entries(Roster(NAMES))], [dict.fromkeys(NAMES, Entry())]
    rng = np.random.default_rng(0)
    for step in range(40):
        of = rng.integers(len(values))  # go on from any of them
        name = NAMES[rng.integers(3)]
        entry = Entry(
            step + 1, f"{step:032x}", (step, 0.1, 1, 60, 2), gone=step % 3 == 0
        )
        values.append(values[of] | {name: entry})
        wanted.append(wanted[of] | {name: entry})
        if step % 5 == 0:
            told = (step, 0.2, 1, 60, 3)
            values.append(values[-1].with_counted_in(NAMES[:2], told))
            both = {n: wanted[-1][n]._replace(counted_in=told) for n in NAMES[:2]}
            wanted.append(wanted[-1] | both)
    for k in rng.permutation(len(values)):
        assert values[k] == wanted[k]
        gone = tuple(name for name in NAMES if wanted[k][name].gone)
        assert values[k].flagged(GONE) == gone
        assert values[k].num_here == len(NAMES) - len(gone)


def test_rounds_that_no_line_names_are_forgotten():
    entries = Entries(Roster(("a", "b")))
    for step in range(1000):
        entries |= {"a": Entry(step + 1, "", (step, 0.1, 1, 2, 1))}
        entries.flagged(GONE)
    assert entries.rounds == {999} and len(entries._table.rounds) <= 2 * 2 + 100


def test_an_epoch_keeps_who_has_left_and_what_was_lost():
    entries = Entries(Roster(("a", "b"))) | {
        "a": Entry(3, "0" * 32, (), 7, gone=True, losses=1, pushes=2),
        "b": Entry(4, "1" * 32, (), 9),
    }
    after = entries.new_epoch(["a"])
    assert after["a"] == Entry(grads_done=7, gone=True, losses=2)
    assert after["b"] == Entry(grads_done=9) and entries["b"].applied == 4


# On disk.


def test_lines_beside_the_ledger_are_read_as_they_were(few, folder):
    """With a restart after every round, through several files and a new epoch."""
    with opened(folder) as protocol:
        said = lived(protocol, folder, 1)
    for r in range(12):
        with opened(folder) as protocol:
            assert protocol.ledger.entries == said[-1]
            if r == 8:
                protocol.new_epoch()
                assert not any(protocol.applied.values())
            said = lived(protocol, folder, 2)
            assert 1 <= len(protocol.ledger.entries.files) <= 1 + len(NAMES) // 4 + 1
    read = {file.file: file.state for file in verify(folder / "job")}
    assert {read[name] for name in lines_in(folder)} == {"ok"}


def test_what_few_sites_write_is_one_file_and_the_one_before(folder):
    with opened(folder) as protocol:
        lived(protocol, folder, 3)
    found = {path.name for path in (folder / "job").iterdir()}
    assert found == {"server.ledger", "server.1.ledger", "server.ledger.lock"}


@pytest.mark.parametrize("how", ["cut", "flipped", "gone"])
@pytest.mark.parametrize("most", [4, 8192])
def test_damaged_books_are_said_and_those_before_them_gone_on_from(
    how, most, folder, monkeypatch, caplog
):
    monkeypatch.setattr(books, "MOST", most)
    with opened(folder) as protocol:
        said, path = lived(protocol, folder, 4), protocol._path
    for _ in range(2):  # the good ones are not lost to the damaged
        whole = path.read_bytes()
        flipped = whole[:90] + bytes([whole[90] ^ 1]) + whole[91:]
        path.unlink()
        if how != "gone":
            path.write_bytes(flipped if how == "flipped" else whole[:-5])
        caplog.clear()
        with opened(folder) as protocol:
            assert protocol.ledger.entries == said[-2] and protocol.round == 3
            assert "Going on from the one before it" in caplog.text
            assert protocol.notice in caplog.text
    with opened(folder) as protocol:
        assert protocol.notice == "" and protocol.ledger.entries == said[-2]


def test_without_either_of_them_a_job_does_not_go_on(few, folder):
    with opened(folder) as protocol:
        lived(protocol, folder, 3)
        path = protocol._path
    for damaged in (path, path.with_name("server.1.ledger")):
        damaged.write_bytes(damaged.read_bytes()[:-5])
    with pytest.raises(ValueError, match="cannot resume.*Nor from the one before it"):
        opened(folder)


def test_lines_that_are_missing_or_another_s_are_damage(few, folder):
    with opened(folder) as protocol:
        lived(protocol, folder, 4)
        one, *_ = protocol.ledger.entries.files
    path = folder / "job" / f"server.{one}.lines"
    whole = files.load(path)
    path.unlink()
    with pytest.raises(ValueError, match=f"cannot resume.*{one}.lines is missing"):
        opened(folder)
    (found,) = (f for f in verify(folder / "job") if f.file == path.name)
    assert found.state == "damaged"
    files.save(path, whole | {"header": whole["header"].replace(b"lines", b"lenis")})
    with pytest.raises(ValueError, match="cannot resume.*checksum"):
        opened(folder)


def test_a_full_disk_changes_nothing_and_the_next_round_is_written(few, folder):
    with opened(folder) as protocol:
        lived(protocol, folder, 3)
        before, x = dict(protocol.ledger.entries), protocol.x
        full = OSError(errno.ENOSPC, "No space left on device")
        for call in ("replace", "link"):
            with patch.object(os, call, side_effect=full), pytest.raises(OSError):
                protocol.new_epoch()
            assert dict(protocol.ledger.entries) == before and protocol.x is x
        said = lived(protocol, folder, 2)
    with opened(folder) as protocol:
        assert protocol.ledger.entries == said[-1] and protocol.epoch == 1
    assert not [*(folder / "job").glob(".part-*")]


def test_a_file_system_without_links_keeps_the_one_before_too(folder):
    with patch.object(os, "link", side_effect=OSError(errno.EPERM, "not permitted")):
        with opened(folder) as protocol:
            lived(protocol, folder, 2)
            path = protocol._path
    path.unlink()
    with opened(folder) as protocol:
        assert protocol.round == 1


def test_of_many_sites_a_ledger_knows_how_many_and_a_checksum(folder):
    names = tuple(f"n{i}" for i in range(1001))
    weights = dict.fromkeys(names, 2.0)
    with opened(folder, names, weights=weights) as protocol:
        assert protocol._path.stat().st_size < 60 * len(names)
    others = (*names[:-1], "other")
    with pytest.raises(ValueError, match="cannot resume.*its sites is .1001, '"):
        opened(folder, others, weights=dict.fromkeys(others, 2.0))
    with pytest.raises(ValueError, match=r"for every site, n0, .*n9, \.\.\., by name"):
        opened(folder, others, weights=weights)
    with pytest.raises(ValueError, match="cannot resume.*its weights"):
        opened(folder, names, weights={**weights, "n3": 3.0})


def test_lines_of_a_ledger_must_be_lines():
    roster, block = Roster(("a", "b")), Entries(Roster(("a", "b"))).block(None)
    for lines in ({"line": block.lines["line"][:1]}, {"line": np.zeros((2, 3), "u1")}):
        with pytest.raises(Refused, match="its lines are u"):
            Entries.read(roster, {}, block._replace(lines=lines))
    other = {**block.lines, "site": np.array([0, 2])}
    with pytest.raises(Refused, match="of other sites"):
        Entries.read(roster, {}, block._replace(lines=other))


@pytest.mark.parametrize(
    "name", ["", ".", "-x", "a/b", "a\n", "a\nb", "ä", "a" * 101, 3]
)
def test_one_bad_name_among_many_is_named(name, as_a_user):
    files.check_names("site", NAMES)
    with pytest.raises(ValueError, match="site must be a name of letters"):
        files.check_names("site", (*NAMES, name))

"""Whatever happens to messages, processes and disks, a deployment comes out exact."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import Diary

import focusfl as ff
from focusfl import files
from world import laws
from world.__main__ import main
from world.bugs import BUGS, planted
from world.disk import Death, Disk, Killed
from world.job import job
from world.sequence import Life, drawn, live, shrunk
from world.world import POINTS, World

MANY = [ff.Focus(), ff.Scaffold(), ff.Scaffnew(), ff.FedAWE(), ff.Focus(True), Diary()]
ROOT = Path(__file__).parent.parent.parent


def test_no_sequence_breaks_a_law():
    """The command, in a process of its own: without the type checks of the tests."""
    command = [sys.executable, "tests/world", "--sequences", "400", "--seed", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "400 sequences from seed 0" in done.stdout and " 0 violations" in done.stdout


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug, as_a_user):
    """Where the sequences have changed, `python tests/world --bugs` finds seeds."""
    with planted(bug):
        assert live(drawn(bug.seed)).wrong


def test_a_seed_is_the_very_same_sequence_again(as_a_user):
    one, other = live(drawn(14)), live(drawn(14))
    assert one == other and one.tally["operations"] > 100
    assert one != live(drawn(15))


def test_what_is_left_of_a_violation_is_all_that_it_takes(as_a_user):
    bug = next(bug for bug in BUGS if bug.name.startswith("stale requests"))
    with planted(bug):
        life = drawn(bug.seed)
        less = shrunk(life)
        assert live(less).wrong and len(less.events) < len(life.events)
        for k in range(len(less.events)):
            events = [*less.events[:k], *less.events[k + 1 :]]
            assert not live(less._replace(events=events)).wrong


@pytest.mark.parametrize("copies", [False, True], ids=["", "copies"])
@pytest.mark.parametrize("algorithm", MANY, ids=repr)
def test_a_death_at_any_point_of_any_write_changes_no_result(
    algorithm, copies, tmp_path, as_a_user
):
    """Of a site's answer and of a server that closes a round or comes back, with the
    machine's power and without."""
    with World(job(algorithm, copies=copies), tmp_path) as world:
        for point in range(POINTS):
            death = Death(point, random.Random(point) if point % 2 else None)
            for act in (
                lambda: [world.play(i) for i in range(3)],
                lambda death=death: world.close(death),
                lambda: world.ask(0),
                lambda death=death: world.answer(
                    world.network.requests[-1], dying=death
                ),
                lambda: world.answer(world.network.requests.pop()),
                lambda death=death: world.restart(death.power, death),
                lambda: world.bring(world.network.replies.pop()),  # it is too late
                world.close,
            ):
                act()
                laws.check(world)
        assert world.tally["applied"] > 30 and world.server.epoch == 1
        assert world.tally["crashes"] > 2 * POINTS


@pytest.mark.parametrize(
    "algorithm", [ff.Scaffnew(), ff.TAMUNA(), ff.ProxSkip(), ff.FedAWE()], ids=repr
)
def test_where_the_answer_moves_the_memory_a_newcomer_has_no_goodbye_either(
    algorithm, tmp_path, as_a_user
):
    """Found by a seed: its zero push shifted what the others correct each other by."""
    with World(job(algorithm), tmp_path) as world:
        assert world.play(0, goodbye=True) == "refused by the site"
        laws.check(world)


def test_nothing_at_all_is_a_sequence_too(as_a_user):
    lived = live(Life(job(ff.Focus()), [], end=0))
    assert not lived.wrong and 0 < lived.error <= laws.EXACT


def test_the_command_says_what_it_cannot_do(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["world", "--sequences", "0"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--sequences must be positive; got 0." in capsys.readouterr().err


# The disk.


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path / "disk")


def outcomes(disk, act, name="file"):
    """What a file may hold after a loss of power, however that goes."""
    found, before = set(), disk.image()
    path = Path(disk.folder) / name
    for seed in range(40):
        disk.restore(before)
        with disk.running():
            act(path)
        disk.lose_power(random.Random(seed))
        found.add(path.read_bytes() if path.exists() else None)
    return found


def test_what_our_writer_has_written_survives_a_loss_of_power(disk):
    assert outcomes(disk, lambda path: files.write(path, b"new")) == {b"new"}


def test_what_was_not_synced_is_there_or_torn_or_not(disk):
    found = outcomes(disk, lambda path: path.write_bytes(b"new"))
    assert {None, b"", b"new"} <= found
    assert {b"ne", b"n"} & found and {b"n\0\0", b"ne\0", b"\0\0\0"} & found


def test_a_rename_that_was_not_synced_may_be_undone(disk):
    disk.restore({f"{disk.folder}/file": b"old"})

    def act(path):
        part = path.with_name("part")
        part.write_bytes(b"new")
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)

    assert outcomes(disk, act) == {b"old", b"new"}


def test_a_writer_that_dies_leaves_the_old_or_the_new(disk):
    path, left = Path(disk.folder) / "file", []
    for calls in range(12):
        disk.restore({str(path): b"old"})
        try:
            with disk.running(calls):
                files.write(path, b"new")
        except Killed:
            left.append(path.read_bytes())
    assert left == sorted(left, reverse=True) and {*left} == {b"old", b"new"}

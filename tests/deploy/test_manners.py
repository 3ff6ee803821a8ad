"""What `deploy` deletes and stops is its own, and nothing outlives it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import in_process
from sleepers import ended, sleeper, words

from focusfl.deploy import certificates, ownership
from focusfl.deploy.fleet import Fleet
from focusfl.deploy.local import FILES, PARTS, prepare
from focusfl.deploy.processes import is_alive, stop

STUDY = """
rounds = 3
lr = 0.3
[problem]
kind = "random_quadratic"
[participation.full]
[algorithms.focus]
"""


def fill(folder):
    """Somebody's work, by the names that ours has."""
    for name in PARTS:
        (folder / name).mkdir(parents=True)
        (folder / name / "theirs").write_text("years of work")
    for name in FILES:
        (folder / name).write_text("{}")
    return {file: state(file) for file in sorted([folder, *folder.rglob("*")])}


def state(file):
    """All that writing to a file would change; not when it was read."""
    found = file.stat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns


def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path):
    """Before this, app, keys, logs and the like in it were deleted unasked."""
    (tmp_path / "study.toml").write_text(STUDY)
    before = fill(tmp_path / "thesis")
    done = in_process("deploy", "local", "study.toml", "--out", "thesis", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "thesis must be a new or empty folder, or one of deploy local" in done.stderr
    after = {file: state(file) for file in sorted(before)}
    assert after == before and not (tmp_path / "thesis" / ownership.MARKER).exists()


def test_ours_is_emptied_and_the_mode_of_a_folder_stays(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    prepare(folder, ["a"], tls=False)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    for name in ("keys", "flwr", "logs"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o700
    (folder / "notes.txt").write_text("theirs")
    (folder / "server").mkdir()
    (folder / "server" / "old").touch()
    for name in ("index.html", "figure.png"):
        (folder / name).write_text("of an earlier run")
    prepare(folder, ["a"], tls=False)
    assert (folder / "notes.txt").read_text() == "theirs"
    assert not (folder / "server").exists()
    assert not (folder / "index.html").exists() and not [*folder.glob("*.png")]
    prepare(tmp_path / "new", ["a"], tls=False)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_nothing_outlives_a_parent_that_is_killed(tmp_path):
    """By kill -9, which nobody can hear: before this all of it ran on."""
    here = str(Path(__file__).parents[1])
    code = (
        f"import sys, time; sys.path.insert(0, {here!r}); "
        "from pathlib import Path; from sleepers import sleeper, words; "
        f"process = sleeper(Path({str(tmp_path)!r})).start(); "
        "print(process.pid, words(process), flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        child, grandchild = map(int, parent.stdout.readline().split())
        assert is_alive(child) and is_alive(grandchild)
        parent.kill()
    assert ended(child) and ended(grandchild)


def test_stop_ends_what_was_started_in_a_folder_and_nothing_else(tmp_path):
    ownership.claim(tmp_path / "runs" / "one")
    process, other = sleeper(tmp_path).start(), sleeper(tmp_path, "other").start()
    child = int(words(process))
    noted = f'{{"superlink": [{process.pid}, "signal"], "gone": [{os.getpid()}, "xyz"]}}'
    (tmp_path / "runs" / "one" / ownership.PROCESSES).write_text(noted)
    with pytest.raises(ValueError, match="superlink still run; focusfl deploy stop"):
        ownership.claim(tmp_path / "runs" / "one")
    ownership.PATIENCE, before = 0.3, ownership.PATIENCE  # they are deaf to the first signal
    try:
        done = in_process("deploy", "stop", cwd=tmp_path)
    finally:
        ownership.PATIENCE = before
    assert done.returncode == 0 and "runs/one: stopped superlink\n" in done.stdout
    process.kill()
    assert ended(child) and other.alive
    stop([other], patience=0.1)
    done = in_process("deploy", "stop", "runs/one", cwd=tmp_path)
    assert done.returncode == 0 and "nothing runs" in done.stdout
    assert in_process("deploy", "stop", "none", cwd=tmp_path).returncode == 2


def test_who_started_it_is_asked_first(tmp_path):
    code = (
        "import sys, time, signal; from pathlib import Path; "
        "from focusfl.deploy import ownership; "
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        f"ownership.claim(Path({str(tmp_path / 'run')!r})); "
        "print('ready', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout.readline() == "ready\n"
        assert ownership.driver_of(tmp_path / "run") == driver.pid
        ownership.stop(tmp_path / "run")
        assert driver.wait(60) == 7
    assert ownership.driver_of(tmp_path / "run") is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"pid": "x", "began": 1}'])
def test_a_damaged_marker_stops_nobody(tmp_path, text):
    (tmp_path / ownership.MARKER).write_text(text)
    assert ownership.driver_of(tmp_path) is None and ownership.stop(tmp_path) == []


def test_a_number_that_another_process_has_by_now_is_nobody(tmp_path):
    (tmp_path / ownership.MARKER).write_text(f'{{"pid": {os.getpid()}, "began": "Mon 1"}}')
    assert ownership.driver_of(tmp_path) is None


WRONG = {
    "certificates new": "at least one host name",
    "certificates none --renew": "renewing needs ca.key",
    "certificates new --hosts a --sites ../b": "a site must be a name",
}


@pytest.mark.parametrize("command", WRONG)
def test_bad_input_is_one_line_and_nothing_is_written(command, tmp_path):
    done = in_process("deploy", *command.split(), cwd=tmp_path)
    assert done.returncode == 2 and WRONG[command] in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not [*tmp_path.rglob("*.*")]


def test_certificates_that_end_soon_are_said_by_status_and_doctor(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "DAYS", 30)
    fleet = Fleet(tmp_path / "runs" / "x", ["a"], tls=True)
    (fleet.folder / ownership.PROCESSES).write_text(f'{{"superlink": [{os.getpid()}, "no"]}}')
    done = in_process("deploy", "status", cwd=tmp_path)
    assert "server.crt ends in 29 days" in done.stdout.replace("\n ", "")
    monkeypatch.chdir(fleet.folder)
    from focusfl.cli import doctor

    assert "ends in 29 days" in doctor._certificates()["certificates"]["keys"]

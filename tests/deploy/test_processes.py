import os
import stat

from sleepers import ended, sleeper, words

from focusfl.deploy import monitor, ownership
from focusfl.deploy.processes import environment, free_ports, is_alive, listens, stop


def test_stopping_ends_children_too_and_nothing_else(tmp_path):
    ours, other = sleeper(tmp_path).start(), sleeper(tmp_path, "other").start()
    child, foreign = int(words(ours)), int(words(other))
    assert os.getpgid(child) == ours.pid and os.getpgid(foreign) == other.pid
    stop([ours], patience=0.2)
    assert not ours.alive and ended(child)
    assert other.alive and is_alive(foreign)
    other.kill()
    assert ended(foreign)


def test_a_killed_process_starts_again(tmp_path):
    process = sleeper(tmp_path, code="print('here', flush=True); input()")
    process.start()
    words(process)
    process.kill()
    first = process.pid
    process.start()
    assert process.pid != first
    process.kill()


def test_what_processes_write_is_their_owners_alone(tmp_path):
    process = sleeper(tmp_path, code=f"open({str(tmp_path / 'x')!r}, 'w'); print(1)")
    process.start()
    words(process)
    process.kill()
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_nothing_we_start_reaches_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    env = environment(tmp_path)
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    assert env["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_free_ports_are_different_and_free():
    ports = free_ports(5)
    assert len(set(ports)) == 5 and not any(listens(port) for port in ports)


def test_ownership_knows_a_pid_that_somebody_else_has_by_now(tmp_path):
    (tmp_path / ownership.PROCESSES).write_text(f'{{"superlink": [{os.getpid()}, "flower-s"]}}')
    (line,) = ownership.started(tmp_path)
    assert not line.alive  # this is a test, and no SuperLink
    assert monitor.search(tmp_path)[str(tmp_path)]["progress"] == "no round"
    assert is_alive(os.getpid()) and ownership.started(tmp_path / "none") == []

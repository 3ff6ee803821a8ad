"""The one writer: a file is there whole, or as it was, or an error says why."""

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys

import pytest

from focusfl.core.files import BLANK, Damaged, check, clear_parts, read, renamed, write
from focusfl.flower.protocol.store import Store
from focusfl.simulation.checkpoint import open_checkpoint
from focusfl.simulation.spec import Checkpoint

WRITER = """
import os, signal, sys
from pathlib import Path
from focusfl.core.files import renamed
with renamed(Path(sys.argv[1])) as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_error_leaves_what_was_there(tmp_path):
    target = write(tmp_path / "deep" / "file", "old")
    with pytest.raises(RuntimeError), renamed(target) as part:
        part.write_text("new")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_what_a_killed_writer_left_is_cleared_and_no_others(tmp_path):
    target, beside = tmp_path / "file", tmp_path / "file2"
    for path in (target, beside):
        done = subprocess.run([sys.executable, "-c", WRITER, str(path)])
        assert done.returncode == -signal.SIGKILL and not path.exists()
    assert len(list(tmp_path.iterdir())) == 2
    clear_parts(target)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".part-file2-")


@pytest.mark.parametrize("private, mode", [(True, 0o600), (False, 0o644)])
def test_a_private_file_is_its_owners_alone(tmp_path, private, mode):
    old = os.umask(0o022)
    try:
        with renamed(tmp_path / "file", private) as part:
            part.write_text("x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_failure_names_the_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: .*file"):
        write(tmp_path / "file", "x")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_there_with_all_its_files_or_not_at_all(tmp_path):
    target = tmp_path / "images"
    with pytest.raises(RuntimeError), renamed(target, folder=True) as part:
        (part / "half").write_text("x")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with renamed(target, folder=True) as part:
        (part / "whole").write_text("x")
    assert (target / "whole").read_text() == "x" and list(tmp_path.iterdir()) == [target]


def test_a_sealed_file_says_its_own_checksum_and_any_flipped_bit_is_seen(tmp_path):
    file = write(tmp_path / "file", f"words {BLANK} more words", sealed=True)
    content, seal = read(file)
    assert seal == hashlib.sha256(f"words {BLANK} more words".encode()).hexdigest()
    with open(file, "rb") as opened:
        assert check(file, opened) == seal
    for at in range(0, 8 * len(content), 5):
        whole = bytearray(content)
        whole[at // 8] ^= 1 << at % 8
        file.write_bytes(whole)
        try:
            assert read(file)[1] is None  # the place of the seal is not found any more
            assert content.index(b"focusfl") <= at // 8 < content.index(b":") + 1
        except Damaged as error:
            assert "file is damaged" in str(error)


def test_what_says_a_seal_itself_cannot_be_sealed(tmp_path):
    for content in ("none", f"{BLANK} {BLANK}", f"{BLANK} focusfl-sha256:"):
        with pytest.raises(ValueError, match="cannot be written"):
            write(tmp_path / "file", content, sealed=True)
    assert not list(tmp_path.iterdir())


def test_new_folders_are_on_disk_with_their_names(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("focusfl.core.files.sync", lambda path: synced.append(path.name))
    write(tmp_path / "a" / "b" / "file", "x")
    assert synced[:2] == ["a", tmp_path.name] and synced[-1] == "b"


def no_locks(handle, how):
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_disk_without_locks_is_no_place_for_the_wire(tmp_path, monkeypatch):
    """A server that could be there twice would count pushes twice."""
    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(OSError, match="No locks"):
        Store(tmp_path / "server.db")


def test_a_checkpoint_may_be_on_a_disk_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", no_locks)
    with open_checkpoint(Checkpoint(tmp_path / "run", 60)) as kept:
        assert kept.folder == tmp_path / "run"

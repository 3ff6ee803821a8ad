"""No damage is read without a word, and `focusfl verify` names it."""

import json
import shutil
from collections import Counter

import pytest
from command_line import in_process
from corrupt import corrupt, kinds, outcomes

from focusfl.core import files
from focusfl.flower import events
from focusfl.studies.verify import verify


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return kinds(tmp_path_factory.mktemp("made"))


def flip(file):
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 4
    file.write_bytes(whole)


def test_no_damage_of_any_kind_of_file_is_read_without_a_word(made, tmp_path):
    """A few tries of each; `python tests/corrupt.py` makes thousands."""
    found = corrupt(made, tmp_path, many=8, seed=0)
    for name, own in found.items():
        assert outcomes(own)["silent"] == 0, (name, own)
        assert outcomes(own)["detected"] >= 3, (name, own)


def test_without_checksums_damage_would_be_silent(made, tmp_path, monkeypatch):
    def trusting(path, whole):
        at = whole.find(files.SEAL.encode())
        return None if at < 0 else bytes(whole[at + 15 : at + 79]).decode("latin1")

    monkeypatch.setattr(files, "_checked", trusting)
    monkeypatch.setattr("focusfl.simulation.rows.Column.check", lambda *_: None)
    name = "clients-*.rows"
    found = corrupt({name: made[name]}, tmp_path, many=25, seed=0)
    assert outcomes(found[name])["silent"] > 0


@pytest.mark.parametrize(
    "name, checked, unknown",
    [
        ("manifest.json", 10, 3),  # pages and the lock
        ("clients-*.rows", 3, 0),
        ("suite runs/*.json", 3, 0),
    ],
)
def test_verify_lists_what_is_sound_and_what_is_damaged(made, tmp_path, name, checked, unknown):
    folder = shutil.copytree(made[name].folder, tmp_path / "folder")
    told = in_process("verify", folder, "--json")
    assert told.returncode == 0 and told.stderr == ""
    found = json.loads(told.stdout)
    assert found["ok"] >= checked and found["damaged"] == 0
    assert found["unknown"] <= unknown
    file = min(folder.glob(made[name].files))
    flip(file)
    told = in_process("verify", folder)
    (line,) = (one for one in told.stdout.splitlines() if one.startswith("damaged"))
    assert told.returncode == 1 and file.name in line
    if name != "manifest.json":  # without it nobody knows what others should be
        assert told.stdout.splitlines()[-1].startswith(f"{found['ok'] - 1} ok, 1 damaged")


def test_verify_sees_what_is_missing_or_of_another_time(made, tmp_path):
    study = made["manifest.json"]
    folder = shutil.copytree(study.folder, tmp_path / "folder")
    model = min(folder.glob(made["models/*"].files))
    model.unlink()
    shutil.copy(study.older / "participation.parquet", folder)
    damaged = {one.file: one.why for one in verify(folder) if one.state == "damaged"}
    assert damaged.pop(model.relative_to(folder).as_posix()) == "it is missing"
    assert "of another time" in damaged.pop("participation.parquet")
    assert not damaged


def test_rows_that_a_checkpoint_needs_are_missed(made, tmp_path):
    folder = shutil.copytree(made["clients-*.rows"].folder, tmp_path / "folder")
    (folder / "clients-1.rows").unlink()
    states = Counter(one.state for one in verify(folder))
    assert states == {"ok": 2, "damaged": 1}


def test_files_of_a_deployment_are_known_by_their_form(tmp_path):
    place = tmp_path / "server" / "job"
    place.mkdir(parents=True)
    events.write(place, {"event": "begin", "round": 0})
    (tmp_path / "processes.json").write_text("{}")
    assert Counter(one.state for one in verify(tmp_path)) == {"ok": 2}
    with open(place / events.FILE, "a") as file:
        file.write('{"event": "round", "rou\n')
    events.write(place, {"event": "end", "round": 1})
    (tmp_path / "processes.json").write_text("[" * 10**5)
    states = {one.file: one.why for one in verify(tmp_path) if one.state == "damaged"}
    assert "line 2 is not whole" in states["server/job/events.jsonl"]
    assert "line 1 is not whole" in states["processes.json"]


def test_a_folder_that_is_not_ours_is_one_line(tmp_path):
    (tmp_path / "letter.txt").write_text("x")
    for folder, words in (
        (tmp_path, "nothing that can be"),
        ("nowhere", "is no folder"),
    ):
        told = in_process("verify", folder)
        assert told.returncode == 2 and words in told.stderr
        assert told.stderr.count("\n") == 1

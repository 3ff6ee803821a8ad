"""A study's folder in which something is damaged: said, never used, run again."""

import shutil
import time

import numpy as np
import pytest
from corrupt import STUDY

import focusfl as ff
from focusfl.studies import runner, spec, store


def complete(study, out, *changes):
    ran = []
    found = runner.run_in_folder(spec.load(study, ["seeds=1", *changes]), out, finished=ran.extend)
    return found, ran


def same(a, b):
    """The curves of two tables, but for the seconds, to the bit."""
    for column in set(a.columns) - {"seconds"}:
        assert np.array_equal(a[column], b[column]), column


RUNS = ("runs/*[0-9a-f].parquet", "runs/*.clients.parquet")
FILES = ("manifest.json", "participation.parquet", *RUNS)
MODEL = "models/some-focus-seed0-*.safetensors"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A study that leaves every kind of file, and its folder."""
    place = tmp_path_factory.mktemp("served")
    (place / "study.toml").write_text(STUDY)
    found, _ = complete(place / "study.toml", place / "out")
    return place / "study.toml", found


def flip(file, at=0.5):
    whole = bytearray(file.read_bytes())
    whole[int(at * len(whole))] ^= 4
    file.write_bytes(whole)


def read_all(place):
    store.Study.load(place)
    ff.Study.load(place).table()
    ff.Study.load(place).model(algorithm="focus")


@pytest.mark.parametrize("name", [*FILES, MODEL])
def test_a_flipped_bit_or_a_missing_file_is_said_in_one_line(served, tmp_path, name):
    place = shutil.copytree(served[1].folder, tmp_path / "out")
    read_all(place)
    file = min(place.glob(name))
    flip(file)
    again = rf"{file.name} is damaged.*Run it again: what is finished"
    with pytest.raises(ValueError, match=again) as said:
        read_all(place)
    assert "\n" not in str(said.value)
    file.unlink()
    with pytest.raises(ValueError, match=rf"{file.name} is missing|there is no manif"):
        read_all(place)


def test_a_file_of_an_earlier_study_is_not_taken_for_that_of_this_one(served, tmp_path):
    study, found = served
    place = shutil.copytree(found.folder, tmp_path / "out")
    complete(study, place, "rounds=30")
    shutil.copy(found.folder / "participation.parquet", place)
    with pytest.raises(ValueError, match="of another time than manifest.json"):
        store.Study.load(place)


@pytest.mark.parametrize("kind", [*RUNS, MODEL])
@pytest.mark.parametrize("how", [flip, lambda file: file.unlink()], ids=["bit", "gone"])
def test_what_is_damaged_is_run_again_and_said(served, tmp_path, capsys, kind, how):
    study, found = served
    place = shutil.copytree(found.folder, tmp_path / "out")
    file = min(place.glob(kind))
    how(file)
    again, ran = complete(study, place)
    assert len(ran) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert file.name in line and "are run again" in line
    same(*(ff.Study.load(f.folder).table() for f in (found, again)))
    assert complete(study, place)[1] == []
    assert capsys.readouterr().err == ""


def test_seconds_that_are_damaged_are_counted_anew_and_said(tmp_path, capsys):
    tell = runner.note_seconds(None, tmp_path, time.perf_counter() - 5)
    tell(1, {})
    whole = (tmp_path / "seconds").read_text()
    assert runner.seconds_before(tmp_path) >= 5
    (tmp_path / "seconds").write_text("9" + whole)
    assert runner.seconds_before(tmp_path) == 0
    assert "seconds is damaged" in capsys.readouterr().err

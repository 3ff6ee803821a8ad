"""A study's folder in which something is damaged: said, never used, run again."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from corrupt import STUDY

import focusfl as ff
from focusfl.studies import config, runner, stopwatch, store


def complete(study, out, *changes):
    ran = []
    found = runner.run_in_folder(
        config.load(study, ["seeds=1", *changes]), out, finished=ran.extend
    )
    return found, ran


def same(a, b):
    """The curves of two tables, but for the seconds, to the bit."""
    for column in set(a.columns) - {"seconds"}:
        assert np.array_equal(a[column], b[column]), column


FILES = ("manifest.json", "results.parquet", "participation.parquet", "clients.parquet")
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
    ff.load_results(place)
    ff.load_model(place, algorithm="focus")


@pytest.mark.parametrize("name", [*FILES, MODEL])
def test_a_flipped_bit_or_a_missing_file_is_said_in_one_line(served, tmp_path, name):
    place = shutil.copytree(served[1].folder, tmp_path / "out")
    read_all(place)
    (file,) = place.glob(name)
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
    for name in FILES:
        now = (place / name).read_bytes()
        shutil.copy(found.folder / name, place / name)
        with pytest.raises(ValueError, match="of another time than what is beside it"):
            store.Study.load(place)
        (place / name).write_bytes(now)
    store.Study.load(place)


@pytest.mark.parametrize("kind", ["runs/*.parquet", "runs/*.clients", MODEL])
@pytest.mark.parametrize("how", [flip, lambda file: file.unlink()], ids=["bit", "gone"])
def test_what_is_damaged_is_run_again_and_said(served, tmp_path, capsys, kind, how):
    study, found = served
    place = shutil.copytree(found.folder, tmp_path / "out")
    file = min(place.glob(kind))
    how(file)
    again, ran = complete(study, place)
    assert len(ran) == 1
    said = capsys.readouterr().err
    if file.suffix != ".parquet" or how is flip:
        (line,) = said.splitlines()
        assert file.name in line and "are run again" in line
    same(*(ff.load_results(f.folder) for f in (found, again)))
    assert complete(study, place)[1] == []
    assert capsys.readouterr().err == ""


def test_a_folder_from_before_there_were_checksums_is_read_and_said(served, tmp_path, capsys):
    place = shutil.copytree(served[1].folder, tmp_path / "out")
    for file in place.glob("*.parquet"):
        table = pq.read_table(file)
        words = table.schema.metadata
        about = json.loads(words.get(b"focusfl", b"{}")) | {"format": 3}
        about.pop("clients", None)
        pq.write_table(table.replace_schema_metadata({b"focusfl": json.dumps(about)}), file)
    manifest = json.loads((place / "manifest.json").read_text()) | {"format": 3}
    old = {k: v for k, v in manifest.items() if k not in ("seal", "seals")}
    (place / "manifest.json").write_text(json.dumps(old))
    was, now = served[1], store.Study.load(place)
    assert "has no checksum: an older focusfl wrote it" in capsys.readouterr().err
    for a, b in zip(was.runs, now.runs, strict=True):
        assert a.row == b.row and np.array_equal(a.errors, b.errors)
        assert a.clients.keys() == b.clients.keys() != set()
    # What has a checksum now cannot pass for what had none.
    (place / "manifest.json").write_text(json.dumps(old | {"format": 4}))
    with pytest.raises(ValueError, match="its checksum is gone"):
        store.Study.load(place)


def test_seconds_that_are_damaged_are_counted_anew_and_said(tmp_path, capsys):
    tell = stopwatch.Stopwatch(tmp_path).heard(None)
    tell(1, {})
    tell(2, {})  # too soon to wait for the disk again
    whole = (tmp_path / "seconds").read_text()
    (tmp_path / "seconds").write_text("9" + whole)
    assert stopwatch.Stopwatch(tmp_path).seconds() < 1
    assert "seconds is damaged" in capsys.readouterr().err

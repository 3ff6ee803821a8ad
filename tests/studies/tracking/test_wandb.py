import json
from importlib.util import find_spec

import pytest

from focusfl.studies.tracking import WandB

pytestmark = [
    pytest.mark.usefixtures("offline"),
    pytest.mark.skipif(not find_spec("wandb"), reason="Weights & Biases is not installed"),
]


@pytest.fixture(autouse=True)
def undecided(monkeypatch):
    """A user who has decided nothing."""
    monkeypatch.delenv("WANDB_MODE", raising=False)


def read(folder):
    """The records of the only run in a folder: protobuf in LevelDB's log format."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # a run that has finished may still be on its way to the disk
    (file,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    content, place, part, records = file.read_bytes(), 7, b"", []
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # the rest of a block
            place += 32768 - place % 32768
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        kind = content[place + 6]  # 1 whole, 2 first, 3 middle, 4 last
        part += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            records.append(Record.FromString(part))
            part = b""
    return records


def table(items):
    return {i.key or i.nested_key[0]: json.loads(i.value_json) for i in items}


def history(records):
    return [table(r.history.item) for r in records if r.HasField("history")]


def test_a_run_is_read_back_as_it_was(run, kept, tmp_path):
    WandB("mine", tmp_path)(run)
    records = read(tmp_path)
    points = history(records)
    assert [point["_step"] for point in points] == kept[0]
    for name, values in kept[1].items():
        assert [point[name] for point in points] == values.tolist()
    (about,) = [r.run for r in records if r.HasField("run")]
    assert (about.project, about.display_name) == ("mine", "some/focus/0.002/3/0")
    config = table(about.config.update)
    assert (config["algorithm"], config["lr"], config["seed"]) == ("focus", 2e-3, 0)
    summary = {}
    for record in records:
        summary |= table(record.summary.update)
    for name in ("error", "verdict", "rate", "rounds_to_target", "seconds"):
        assert summary[name] == run.row[name]
    assert [r.exit.exit_code for r in records if r.HasField("exit")] == [0]


def test_two_live_runs_do_not_disturb_each_other(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    tracks = [WandB(folder=folder) for folder in folders]
    tells = [track.progress("live") for track in tracks]
    for done in (5, 10):
        for k, tell in enumerate(tells):
            tell(done, {"distance": k + 1 / done})
    for track in tracks:
        track.close(ok=False)
    for k, folder in enumerate(folders):
        records = read(folder)
        points = [(p["_step"], p["distance"]) for p in history(records)]
        assert points == [(5, k + 0.2), (10, k + 0.1)]
        assert [r.exit.exit_code for r in records if r.HasField("exit")] == [1]


def test_the_users_own_mode_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with WandB(folder=tmp_path) as track:
        track.progress("nothing")(1, {"distance": 0.5})
    assert list(tmp_path.rglob("*.wandb")) == []


def test_a_name_that_is_refused_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="Weights & Biases: .*[Pp]roject"):
        WandB("a/b", tmp_path).progress("mine")

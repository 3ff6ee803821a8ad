from dataclasses import replace
from importlib.util import find_spec

import pytest

from focusfl.studies.tracking import MLflow, tracker

pytestmark = [
    pytest.mark.skipif(not find_spec("mlflow"), reason="MLflow is not installed"),
    pytest.mark.skipif(not find_spec("alembic"), reason="MLflow's data base needs alembic"),
    pytest.mark.usefixtures("offline"),
    # MLflow's own, from within sqlalchemy and sqlite3
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """MLflow may make a folder for files where it is used."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def only(uri, name):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("focusfl")
    found = client.search_runs([experiment.experiment_id])
    (found,) = [run for run in found if run.info.run_name == name]
    return client, found


def history(client, found, name):
    points = client.get_metric_history(found.info.run_id, name)
    return [point.step for point in points], [point.value for point in points]


def test_a_run_is_read_back_as_it_was(run, kept, uri):
    tracker(f"mlflow={uri}")(run)
    client, found = only(uri, "some/focus/0.002/3/0")
    for name, values in kept[1].items():
        assert history(client, found, name) == (kept[0], values.tolist())
    assert found.data.params == {
        "participation": "some", "algorithm": "focus", "lr": "0.002",
        "local_steps": "3", "seed": "0", "rounds": "1500", "measure": "relative error",
    }  # fmt: skip
    for name in ("error", "rate", "rounds_to_target", "seconds"):
        assert history(client, found, name) == ([1500], [run.row[name]])
    assert found.data.tags["verdict"] == "exact"
    assert found.info.status == "FINISHED"


def test_a_run_of_a_study_that_is_there_is_not_written_again(run, uri):
    known = replace(run, row={**run.row, "key": "0123456789abcdef", "seed": 7})
    for _ in range(2):
        tracker(f"mlflow={uri}")(known)
    only(uri, "some/focus/0.002/3/7")


def test_a_live_run_goes_on_until_it_is_closed(uri):
    with pytest.raises(KeyboardInterrupt), tracker(f"mlflow={uri}") as track:
        tell = track.progress("mine", lr=0.5)
        for done, value in ((5, 0.5), (10, 0.25)):
            tell(done, {"distance (relative)": value})
        client, found = only(uri, "mine")
        assert found.info.status == "RUNNING" and found.data.params == {"lr": "0.5"}
        points = history(client, found, "distance _relative_")
        assert points == ([5, 10], [0.5, 0.25])
        raise KeyboardInterrupt
    assert only(uri, "mine")[1].info.status == "FAILED"


def test_the_environment_says_where_by_default(uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    MLflow().progress("by default")
    assert only(uri, "by default")[1].data.params == {}


def test_what_mlflow_refuses_is_one_line():
    with pytest.raises(ValueError, match="MLflow: .*") as error:
        tracker("mlflow=nonsense://here")
    assert "\n" not in str(error.value)

import numpy as np
import pytest

from focusfl.studies.tracking import tracker

pytest.importorskip("tensorboard", reason="TensorBoard is not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata

NAME = "some/focus/0.002/3/0"


def read(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def about(found, tag, parse):
    return parse(found.SummaryMetadata(tag).plugin_data.content)


def test_a_run_is_read_back_as_it_was(run, kept, tmp_path, offline):
    track = tracker(f"tensorboard={tmp_path}")
    track(run)
    found = read(tmp_path / NAME)
    for name, values in kept[1].items():
        points = found.Scalars(name)
        assert [point.step for point in points] == kept[0]
        assert [point.value for point in points] == values.astype(np.float32).tolist()
    for name in ("error", "rate", "rounds_to_target", "seconds"):
        (point,) = found.Scalars(f"summary/{name}")
        assert (point.step, point.value) == (1500, np.float32(run.row[name]))
    (text,) = found.Tensors("summary")
    assert b"| verdict | exact |" in text.tensor_proto.string_val[0]
    start = about(
        found, metadata.SESSION_START_INFO_TAG,
        metadata.parse_session_start_info_plugin_data,
    )  # fmt: skip
    assert start.hparams["lr"].number_value == 2e-3
    assert start.hparams["algorithm"].string_value == "focus"
    end = about(
        found, metadata.SESSION_END_INFO_TAG,
        metadata.parse_session_end_info_plugin_data,
    )  # fmt: skip
    assert end.status == api_pb2.STATUS_SUCCESS


def test_a_run_told_again_replaces_the_one_before(run, kept, tmp_path):
    track = tracker(f"tensorboard={tmp_path}")
    track(run)
    track(run)
    steps = [point.step for point in read(tmp_path / NAME).Scalars("distance")]
    assert steps == kept[0]


def test_a_live_curve_can_be_read_before_the_run_ends(tmp_path):
    with tracker(f"tensorboard={tmp_path}") as track:
        tell = track.progress("mine", lr=0.5)
        tell(7, {"distance": np.float64(0.25)})
        (point,) = read(tmp_path / "mine").Scalars("distance")
        assert (point.step, point.value) == (7, 0.25)


@pytest.mark.parametrize("name", ["", "/etc/x", "a/../../b"])
def test_a_name_that_leaves_the_folder_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="named like a file in a folder"):
        tracker(f"tensorboard={tmp_path / 'here'}").progress(name)
    assert list(tmp_path.iterdir()) == []

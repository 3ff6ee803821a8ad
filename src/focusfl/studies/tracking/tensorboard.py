"""TensorBoard: event files in a folder, written by its own package alone.

Values are kept in single precision, as TensorBoard has them.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from focusfl.studies.tracking.base import Facts, Record, Tracker, need

FOLDER = Path("runs") / "tensorboard"


class TensorBoard(Tracker):
    """Keep runs for `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: str | Path = FOLDER):
        super().__init__()
        need("tensorboard")
        self.folder = Path(folder)

    def begin(self, name: str, parameters: Facts) -> Record:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or not place.parts:
            raise ValueError(f"a run is named like a file in a folder; got {name!r}.")
        return _Events(self.folder / place, parameters)


class _Events(Record):
    def __init__(self, folder: Path, parameters: Facts):
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))
        self._last = 0
        # An earlier run of the same name is over: what it left is not shown any more.
        self._write(session_log=SessionLog(status=SessionLog.START))
        self._write(summary=hparams_pb(dict(parameters)))
        self._writer.flush()

    def log(self, rounds: Sequence[int], curves: Mapping[str, Sequence[float]]) -> None:
        for place, self._last in enumerate(rounds):
            self._write_scalars({name: values[place] for name, values in curves.items()})
        self._writer.flush()

    def end(self, summary: Facts, ok: bool = True) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        if summary:
            numbers = {k: v for k, v in summary.items() if not isinstance(v, str)}
            self._write_scalars({f"summary/{name}": value for name, value in numbers.items()})
            lines = ["| | |", "|-|-|", *(f"| {k} | {v} |" for k, v in summary.items())]
            self._write(summary=text_pb("summary", "\n".join(lines)))
        self._write(summary=_session_end(ok))
        self._writer.close()

    def _write_scalars(self, values: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=k, simple_value=float(v)) for k, v in values.items()]
        self._write(summary=Summary(value=scalars))

    def _write(self, **what: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=self._last, **what))


def _session_end(ok: bool) -> Any:
    """That a run has ended, for the tab of hyperparameters.

    As `hparams.summary.session_end_pb`, which cannot be imported without TensorFlow.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    status = api_pb2.STATUS_SUCCESS if ok else api_pb2.STATUS_FAILURE
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    about = metadata.create_summary_metadata(
        plugin_data_pb2.HParamsPluginData(session_end_info=end)
    )
    value = Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG, tensor=metadata.NULL_TENSOR, metadata=about
    )
    return Summary(value=[value])

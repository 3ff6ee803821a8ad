"""MLflow: a data base file, or a server."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from focusfl.studies.store import Run
from focusfl.studies.tracking.base import Facts, Record, Tracker, need

EXPERIMENT = "focusfl"
BATCH = 1000  # metrics that MLflow takes at once


class MLflow(Tracker):
    """Keep runs where MLflow keeps them: a URI such as sqlite:///mlflow.db.

    Without one, where $MLFLOW_TRACKING_URI says or else MLflow itself, which is where
    `mlflow ui` looks.
    """

    def __init__(self, uri: str | None = None, experiment: str = EXPERIMENT):
        super().__init__()
        need("mlflow")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        with _explained():
            self._client = MlflowClient(uri)
            known = self._client.get_experiment_by_name(experiment)
            self._experiment = (
                known.experiment_id if known else self._client.create_experiment(experiment)
            )

    def __call__(self, run: Run) -> None:
        """Keep a finished run, unless its key says that it is there."""
        if key := run.row.get("key"):
            same = f"params.key = '{key}' and attributes.status = 'FINISHED'"
            with _explained():
                if self._client.search_runs([self._experiment], same, max_results=1):
                    return
        super().__call__(run)

    def begin(self, name: str, parameters: Facts) -> Record:
        from mlflow.entities import Param

        params = [Param(_legal(key), str(value)) for key, value in parameters.items()]
        with _explained():
            run = self._client.create_run(self._experiment, run_name=name).info.run_id
            self._client.log_batch(run, params=params)
        return _MLflowRun(self._client, run)


class _MLflowRun(Record):
    def __init__(self, client: Any, run: str):
        self._client, self._run, self._last = client, run, 0

    def log(self, rounds: Sequence[int], curves: Mapping[str, Sequence[float]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = [
            Metric(_legal(name), value, now, step)
            for name, values in curves.items()
            for step, value in zip(rounds, values, strict=True)
        ]
        with _explained():
            for start in range(0, len(points), BATCH):
                self._client.log_batch(self._run, points[start : start + BATCH])
        self._last = rounds[-1]

    def end(self, summary: Facts, ok: bool = True) -> None:
        words = {k: v for k, v in summary.items() if isinstance(v, str)}
        numbers = {k: [float(v)] for k, v in summary.items() if k not in words}
        if numbers:
            self.log([self._last], numbers)
        with _explained():
            for name, value in words.items():
                self._client.set_tag(self._run, _legal(name), value)
            self._client.set_terminated(self._run, "FINISHED" if ok else "FAILED")


def _legal(name: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^\w\-./: ]", "_", name)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what MLflow raises into a line for the user."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, ImportError) as error:
        raise ValueError(f"MLflow: {str(error).splitlines()[0]}") from error

"""Trackers: where to look at runs, live or finished, beside those of other projects.

A tracker is a function of a finished `Run`, and makes functions for `callbacks` of
`simulate` and `sweep`:

    with tracker("tensorboard=here") as track:
        ff.simulate(..., callbacks=track.progress("mine", lr=0.1))
        for run in ff.Study.load(folder).runs:
            track(run)

Wherever a tracker goes, a function of one's own goes too: of a list of runs for
`finished` of `focusfl.studies.runner.run_in_folder`, of the rounds done and the
metrics by then for `callbacks`.
"""

from focusfl.core.validation import unknown
from focusfl.studies.tracking.base import Record, Tracker
from focusfl.studies.tracking.mlflow import MLflow
from focusfl.studies.tracking.tensorboard import TensorBoard
from focusfl.studies.tracking.wandb import WandB

__all__ = [
    "TRACKERS", "MLflow", "Record", "TensorBoard", "Tracker", "WandB", "tracker",
]  # fmt: skip

TRACKERS: dict[str, type[TensorBoard] | type[MLflow] | type[WandB]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def tracker(spec: str) -> Tracker:
    """Open a tracker: tensorboard=FOLDER, mlflow=URI or wandb=PROJECT, or the name."""
    name, equals, where = (part.strip() for part in spec.partition("="))
    if name not in TRACKERS:
        raise ValueError(unknown("tracker", name, TRACKERS))
    if equals and not where:
        raise ValueError(f"{spec!r} says nothing after =; name a place, or leave it.")
    return TRACKERS[name](where) if where else TRACKERS[name]()

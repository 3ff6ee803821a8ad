"""Weights & Biases: files in the folder wandb, which `wandb sync` can send.

Nothing leaves the machine unless $WANDB_MODE says so.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from focusfl.studies.tracking.base import Facts, Record, Tracker, need

PROJECT = "focusfl"


class WandB(Tracker):
    """Keep runs of a project, in the folder wandb of $WANDB_DIR or of the one given."""

    def __init__(self, project: str = PROJECT, folder: str | Path | None = None):
        super().__init__()
        need("wandb")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self.project, self.folder = project, folder

    def begin(self, name: str, parameters: Facts) -> Record:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE") or "offline"
        try:
            run = wandb.init(
                project=self.project,
                name=name,
                config=dict(parameters),
                dir=self.folder,
                mode=mode,
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
        except wandb.Error as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"Weights & Biases: {reason}") from error
        return _WandBRun(run)


class _WandBRun(Record):
    def __init__(self, run: Any):
        self._run = run

    def log(self, rounds: Sequence[int], curves: Mapping[str, Sequence[float]]) -> None:
        for place, done in enumerate(rounds):
            now = {name: values[place] for name, values in curves.items()}
            self._run.log(now, step=done, commit=True)

    def end(self, summary: Facts, ok: bool = True) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=0 if ok else 1)

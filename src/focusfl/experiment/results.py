"""What a study leaves behind: its finished runs, all of them in one table, a manifest.

manifest.json            the study, the machine, and a row for every run
results.parquet          every curve, tidy: a row per run and evaluated round
participation.parquet    who took part: a row per scenario, round and client
clients.parquet          with metrics = "per_client", what the last model of every run
                         is to each client: a row per run and client
runs/HASH.parquet        runs that were finished together, by their content
models/RUN.safetensors   its last model, or those of all rounds
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.checks import unknown
from focusfl.experiment.tables import IDENTITY as IDENTITY
from focusfl.experiment.tables import Columns, columns_of, tidy
from focusfl.extras import pandas
from focusfl.files import renamed
from focusfl.models import read_model
from focusfl.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 3  # 2 had other words; 1 repeated metrics that were not evaluated
MANIFEST, CURVES, PARTICIPATION, CLIENTS = (
    "manifest.json", "results.parquet", "participation.parquet", "clients.parquet",
)  # fmt: skip
AXES = ("round", "vectors_sent", "gradients", "seconds")  # all but the first summed up
LOSS = "loss"  # of the measures below, the one that says nothing of the optimum
_ABOUT = b"focusfl"  # where a file of runs keeps their rows

Participants = tuple[np.ndarray, np.ndarray]  # rounds and clients, one entry for each


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run: its line of the table and its curves."""

    row: dict[str, Any]
    curves: Columns  # AXES, then the metrics; one entry per evaluated round, x0 first
    model: Any = None  # the last one, or those of all rounds; until it has been written
    clients: Columns = field(default_factory=dict)  # what it is to each; see CLIENTS

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.curves if name not in AXES]

    @property
    def errors(self) -> np.ndarray:
        """What it is judged by: see `measured`."""
        return measured(self.curves)[1]

    @property
    def title(self) -> str:
        """The name of the run among those of one scenario and one seed."""
        return str(self.row["algorithm"])


@dataclass(frozen=True, eq=False)
class Results:
    """A study's folder, read back."""

    folder: Path
    manifest: dict[str, Any]
    runs: list[Run]
    participants: dict[str, Participants]  # by scenario, for the first seed


def measured(curves: Columns) -> tuple[str, np.ndarray]:
    """What runs are judged by, and its name: the first that is known of three.

    The distance to x*, the gradient's norm relative to the first, and the loss.
    """
    if "distance" in curves:
        return "relative error", curves["distance"]
    if "grad_norm" in curves:
        norms = curves["grad_norm"]
        return "relative gradient", norms / (norms[0] or 1.0)
    return LOSS, curves["loss"]


def write_runs(path: Path, runs: list[Run]) -> None:
    """Keep finished runs: one file, there whole or not at all.

    What models are to clients is beside it, written first.
    """
    import pyarrow.parquet as pq

    _write_clients(_clients_of(path), runs)
    table = tidy([(run.row, run.curves) for run in runs])
    points = [len(run.curves["round"]) for run in runs]
    about = {"format": FORMAT, "rows": [run.row for run in runs], "points": points}
    table = table.replace_schema_metadata({_ABOUT: json.dumps(about)})
    with renamed(path) as part:
        pq.write_table(table, part, compression="zstd")


def read_runs(path: Path) -> list[Run]:
    """Read back what `write_runs` wrote."""
    import pyarrow.parquet as pq

    about, curves = _about(path), columns_of(pq.read_table(path))
    runs, start = [], 0
    for row, points in zip(about["rows"], about["points"], strict=True):
        stop = start + points
        own = {k: v[start:stop] for k, v in curves.items() if k not in IDENTITY}
        runs.append(Run(row, {k: v for k, v in own.items() if _told(v)}))
        start = stop
    if not (beside := _clients_of(path)).is_file():
        return runs
    theirs = columns_of(pq.read_table(beside))
    parts = np.split(np.arange(len(theirs["client"])), len(runs))
    drop = (*IDENTITY, "client")
    return [
        replace(run, clients={k: v[at] for k, v in theirs.items() if k not in drop})
        for run, at in zip(runs, parts, strict=True)
    ]


def _clients_of(path: Path) -> Path:
    """Where the clients of these runs are told."""
    return (
        path.with_name(CLIENTS) if path.name == CURVES else path.with_suffix(".clients")
    )


def _write_clients(path: Path, runs: list[Run]) -> None:
    """Write what the last models are to each client; nothing if nobody has asked."""
    import pyarrow.parquet as pq

    if not any(run.clients for run in runs):
        path.unlink(missing_ok=True)  # of an earlier study
        return
    table = tidy(
        [
            (run.row, {"client": np.arange(len(next(iter(run.clients.values())))),
                       **run.clients})
            for run in runs
        ]
    )  # fmt: skip
    with renamed(path) as part:
        pq.write_table(table, part, compression="zstd")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows alone."""
    return _about(path)["rows"]


def _about(path: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = json.loads(pq.read_schema(path).metadata[_ABOUT])
        if about["format"] == FORMAT:
            return about
        reason = f"its format is {about['format']!r}, not {FORMAT}"
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        reason = str(error)
    raise ValueError(
        f"{path} does not hold runs that this focusfl kept ({reason}). Remove it and "
        "run the study again."
    )


def save(
    folder: Path,
    manifest: Mapping[str, Any],
    runs: list[Run],
    participants: Mapping[str, Participants],
) -> list[Path]:
    """Write all runs of a study as one table, who took part, and the manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [folder / CURVES, folder / PARTICIPATION, folder / MANIFEST]
    write_runs(files[0], runs)
    scenarios = [
        pa.repeat(scenario, len(rounds)).dictionary_encode()
        for scenario, (rounds, _) in participants.items()
    ]
    rounds, clients = (
        np.concatenate([own[k] for own in participants.values()]) for k in range(2)
    )
    present = pa.table(
        {
            "participation": pa.chunked_array(scenarios).unify_dictionaries(),
            "round": rounds.astype(np.int32),
            "client": clients.astype(np.int32),
        }
    )
    with renamed(files[1]) as part:
        pq.write_table(present, part, compression="zstd")
    whole = {"format": FORMAT, **manifest, "runs": [run.row for run in runs]}
    with renamed(files[2]) as part:
        part.write_text(json.dumps(whole, indent=2))
    return files


def read(folder: Path) -> Results:
    """Read a study's folder."""
    import pyarrow.parquet as pq

    manifest, runs = _manifest(folder), read_runs(folder / CURVES)
    present = columns_of(pq.read_table(folder / PARTICIPATION))
    participants = {}
    for scenario in manifest["scenarios"]:
        here = present["participation"] == scenario
        participants[scenario] = present["round"][here], present["client"][here]
    return Results(folder, manifest, runs, participants)


def load_results(path: str | Path) -> "pd.DataFrame":
    """Give all curves of a study's folder as a tidy table.

    A row is a run after one of the rounds in which it was evaluated.

    Raises:
        ValueError: If the folder holds no results, or pandas is missing.
    """
    import pyarrow.parquet as pq

    _manifest(Path(path))
    pandas()
    return pq.read_table(Path(path) / CURVES).to_pandas()


def load_model(path: str | Path, **run: Any) -> Tree:
    """Give a model: that of a safetensors file, or that of one run of a study's folder.

    Args:
        path: a .safetensors file, or the folder of a study or deployment.
        run: which run of a folder, by what tells runs apart: algorithm="focus",
            participation="full", lr=0.1, local_steps=5, seed=0. As few as will do.

    Raises:
        ValueError: If the file is damaged, or the folder has no such model, or several.
    """
    path = Path(path)
    if not path.is_dir():
        return read_model(path)
    if strange := set(run) - set(IDENTITY):
        raise ValueError(unknown("property of a run", min(strange), IDENTITY))
    found = [
        row
        for row in _manifest(path)["runs"]
        if all(row[name] == value for name, value in run.items())
    ]
    saved = [row for row in found if row.get("model")]
    if len(saved) != 1:
        what = f"{len(saved)} runs" if found else "no run"
        told = {name: sorted({str(row[name]) for row in saved}) for name in IDENTITY}
        choices = [f"{k}: {', '.join(v)}" for k, v in told.items() if len(v) > 1]
        hint = f" Choose by {'; '.join(choices)}." if choices else ""
        raise ValueError(f"{path} has {what} with a saved model like {run}.{hint}")
    return read_model(path / saved[0]["model"])


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    if not file.is_file():
        raise ValueError(
            f"{folder} holds no results: there is no {MANIFEST}. `focusfl run` writes "
            "one when a study has ended."
        )
    manifest = json.loads(file.read_text())
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{file} has format {manifest.get('format')!r}; this version of focusfl "
            f"reads {FORMAT}. Run the study again."
        )
    return manifest


def _told(values: np.ndarray) -> bool:
    """Whether a run has this metric: where tables are put together, gaps are NaN."""
    return not (values.dtype.kind == "f" and len(values) and np.isnan(values).all())

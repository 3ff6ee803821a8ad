"""What a study leaves behind: its finished runs, all of them in one table, a manifest.

manifest.json            the study, the machine, and a row for every run
results.parquet          every curve, tidy: a row per run and evaluated round
participation.parquet    who took part: a row per scenario, round and client
clients.parquet          with per_client = true, what the last model of every run
                         is to each client: a row per run and client
runs/HASH.parquet        runs that were finished together, by their content
models/RUN.safetensors   its last model, or those of all rounds

Every file is sealed (see `files`). Files that belong together say so: the manifest,
which is written last, has the seals of tables and models.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.core import files
from focusfl.core.extras import pandas
from focusfl.core.files import Damaged
from focusfl.core.models import read_model, seal_of
from focusfl.core.tree import Tree
from focusfl.core.validation import unknown
from focusfl.studies.kept import (
    AXES,
    CLIENTS,
    CURVES,
    FORMAT,
    LOSS,
    Columns,
    Run,
    axes_of,
    check_format,
    measured,
    read_rows,
    read_runs,
    write_runs,
)  # fmt: skip
from focusfl.studies.tables import (
    IDENTITY,
    column,
    columns_of,
    read_table,
    repeated,
    tidy,
    write_table,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AXES", "CLIENTS", "CURVES", "IDENTITY", "LOSS", "MANIFEST", "PARTICIPATION",
    "Columns", "Results", "Run", "axes_of", "load_model", "load_results", "measured",
    "read", "read_manifest", "read_rows", "read_runs", "save", "write_runs",
]  # fmt: skip
MANIFEST, PARTICIPATION = "manifest.json", "participation.parquet"
AGAIN = "Run it again: what is finished and sound is kept."

Participants = tuple[np.ndarray, np.ndarray]  # rounds and clients, one entry for each


@dataclass(frozen=True, eq=False)
class Results:
    """A study's folder, read back."""

    folder: Path
    manifest: dict[str, Any]
    runs: list[Run]
    participants: dict[str, Participants]  # by scenario, for the first seed


def save(
    folder: Path,
    manifest: Mapping[str, Any],
    runs: list[Run],
    participants: Mapping[str, Participants],
) -> list[Path]:
    """Write all runs of a study as one table, who took part, and the manifest."""
    import pyarrow as pa

    scenarios = [repeated(scenario, len(rounds)) for scenario, (rounds, _) in participants.items()]
    rounds, clients = (np.concatenate([own[k] for own in participants.values()]) for k in range(2))
    present = pa.table(
        {
            "participation": pa.chunked_array(scenarios).unify_dictionaries(),
            "round": column(rounds.astype(np.int32)),
            "client": column(clients.astype(np.int32)),
        }
    )
    seals = {
        CURVES: write_runs(folder / CURVES, runs),
        PARTICIPATION: write_table(folder / PARTICIPATION, present),
    }
    models = [run.row["model"] for run in runs if run.row.get("model")]
    seals |= {name: seal_of(folder / name) for name in models}
    whole = {"format": FORMAT, **manifest, "runs": [run.row for run in runs]}
    whole |= {"seals": seals, "seal": files.BLANK}
    files.write(folder / MANIFEST, json.dumps(whole, indent=2), sealed=True)
    return [folder / CURVES, folder / PARTICIPATION, folder / MANIFEST]


def read(folder: Path) -> Results:
    """Read a study's folder.

    Raises:
        ValueError: If there are no results, or a file of theirs is damaged or missing.
    """
    manifest = read_manifest(folder)
    seals = manifest["seals"]
    with _remedy():
        runs = read_runs(folder / CURVES, seals.get(CURVES))
        present, *_ = read_table(folder / PARTICIPATION, seals.get(PARTICIPATION))
    who = columns_of(present)
    participants = {}
    for scenario in manifest["scenarios"]:
        here = who["participation"] == scenario
        participants[scenario] = who["round"][here], who["client"][here]
    return Results(folder, manifest, runs, participants)


def load_results(path: str | Path, *more: str | Path) -> "pd.DataFrame":
    """Give all curves of a study's folder as a tidy table.

    A row is a run after one of the rounds in which it was evaluated.

    Args:
        path: the folder of a study.
        more: folders of the same study with other seeds, to be pooled.

    Raises:
        ValueError: If a folder holds no results, or damaged ones, if folders are of
            different studies, or if pandas is missing.
    """
    manifest = read_manifest(Path(path))
    pandas()
    if more:
        from focusfl.studies.merge import pool

        runs = pool([read(Path(folder)) for folder in (path, *more)]).runs
        return tidy([(run.row, run.curves) for run in runs]).to_pandas()
    with _remedy():
        table, *_ = read_table(Path(path) / CURVES, manifest["seals"].get(CURVES))
    return table.to_pandas()


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
    manifest = read_manifest(path)
    found = [
        row for row in manifest["runs"] if all(row[name] == value for name, value in run.items())
    ]
    saved = [row for row in found if row.get("model")]
    if len(saved) != 1:
        what = f"{len(saved)} runs" if found else "no run"
        told = {name: sorted({str(row[name]) for row in saved}) for name in IDENTITY}
        choices = [f"{k}: {', '.join(v)}" for k, v in told.items() if len(v) > 1]
        hint = f" Choose by {'; '.join(choices)}." if choices else ""
        raise ValueError(f"{path} has {what} with a saved model like {run}.{hint}")
    name = saved[0]["model"]
    with _remedy():
        return read_model(path / name, manifest["seals"].get(name))


def check_model(path: Path, seal: str | None) -> None:
    """Raise unless a saved model is there, sound, and the one with this checksum."""
    with _remedy(), open(path, "rb") as file:
        files.check_seal(path, files.check(path, file), seal)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder's results say of themselves, with the seals of its files."""
    file = folder / MANIFEST
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; name the folder of a study.")
    if not file.is_file():
        raise ValueError(
            f"{folder} holds no results: there is no {MANIFEST}. `focusfl run` writes "
            "one when a study has ended."
        )
    with _remedy():
        content, seal = files.read(file)
        try:
            manifest = json.loads(content)
            found = manifest.get("format")
        except (ValueError, AttributeError) as error:
            raise Damaged(f"{file} is damaged ({error})") from None
        check_format(file, found, seal)
    if seal is None:
        print(f"{folder} {files.UNSEALED}", file=sys.stderr)
        manifest["seals"] = {}
    return manifest


@contextmanager
def _remedy() -> Iterator[None]:
    """Let a damaged file be named together with what would do."""
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged(f"{error.filename} is missing. {AGAIN}") from None
    except Damaged as error:
        raise Damaged(f"{error}. {AGAIN}") from None

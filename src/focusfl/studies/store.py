"""The folder of a study: what was computed once, one manifest with checksums, and its readers.

manifest.json              the study, the machine, a row for every run that has
                           ended, and the SHA-256 of the files that are read back;
                           rewritten after every group of runs
runs/KEY.parquet           curves of runs that were computed together: a row per run and
                           evaluated round; named by everything its numbers follow from
runs/KEY.clients.parquet   with per_client = true, what the last model of every run is to
                           each client: a row per run and client
participation.parquet      who took part: a row per scenario, round and client
models/RUN.safetensors     the last model of a run, or those of all rounds
runs/unfinished/           checkpoints and seconds of groups of runs that have not ended
index.html, figure.png     the report, written by report/output.py when the study has ended

A file counts if the manifest has its checksum. What is there is not computed again:
resuming, merging folders and adding seeds follow from that.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl import __version__
from focusfl.core import files
from focusfl.core.extras import pandas
from focusfl.core.files import Damaged
from focusfl.core.models import read_model
from focusfl.core.tree import Tree
from focusfl.core.validation import shown, unknown
from focusfl.studies.tables import (
    IDENTITY,
    Columns,
    column,
    columns_of,
    read_table,
    repeated,
    tidy,
    write_table,
)

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 5
MANIFEST, PARTICIPATION = "manifest.json", "participation.parquet"
RUNS, MODELS, UNFINISHED = "runs", "models", "unfinished"
LOCK = ".lock"  # in RUNS
TABLE, CLIENTS = ".parquet", ".clients.parquet"
WHOLE = "results"  # the name of runs that are written at once, as of a deployment
CURVES = f"{WHOLE}{TABLE}"
# All but the first are totals; results of a deployment may have no bytes.
AXES = ("round", "vectors_sent", "gradients", "seconds", "bytes_up")
LOSS = "loss"  # of the measures below, the one that says nothing of the optimum
AGAIN = "Run it again: what is finished and sound is kept."

Participants = tuple[np.ndarray, np.ndarray]  # rounds and clients, one entry for each


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run: its row of the table and its curves."""

    row: dict[str, Any]
    curves: Columns  # AXES, then the metrics; one entry per evaluated round, x0 first
    model: Any = None  # the last one, or those of all rounds; until it has been written
    clients: Columns = field(default_factory=dict)  # what the last model is to each client

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.curves if name not in AXES]

    @property
    def errors(self) -> np.ndarray:
        """What it is judged by: see `measured`."""
        return measured(self.curves)[1]


def axes_of(runs: Iterable[Run]) -> list[str]:
    """Those of AXES that all of these runs have."""
    curves = [run.curves for run in runs]
    return [axis for axis in AXES if all(axis in each for each in curves)]


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


class Folder:
    """A folder whose manifest has the checksum of every file in it that is read back."""

    def __init__(self, path: Path, manifest: dict[str, Any] | None = None):
        self.path = path
        self.about = dict(manifest or {})
        self.files: dict[str, str] = self.about.pop("files", {})

    def add(self, *names: str) -> None:
        """Take files that have been written into the manifest."""
        for name in names:
            content = (self.path / name).read_bytes()
            self.files[name] = hashlib.sha256(content).hexdigest()

    def read(self, name: str) -> bytes:
        """Read a file; raise Damaged unless it is there and has its checksum."""
        path = self.path / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise Damaged(f"{path} is missing") from None
        if name not in self.files:
            raise Damaged(f"{path} is not in {MANIFEST}")
        if hashlib.sha256(content).hexdigest() != self.files[name]:
            raise Damaged(f"{path} is damaged, or of another time than {MANIFEST}")
        return content

    def remove(self, name: str) -> None:
        """Take a file away, and out of the manifest."""
        (self.path / name).unlink(missing_ok=True)
        self.files.pop(name, None)

    def save(self, about: Mapping[str, Any] | None = None) -> None:
        """Write the manifest, which is the last to be written; it says what it said, or `about`."""
        self.about = dict(self.about if about is None else about)
        whole = self.about | {"format": FORMAT, "files": self.files, "seal": files.BLANK}
        files.write(self.path / MANIFEST, json.dumps(whole, indent=2), sealed=True)

    def write_runs(self, name: str, runs: list[Run]) -> None:
        """Write curves, rows and what models are to clients as `name`.parquet."""
        about = {
            "rows": [run.row for run in runs],
            "points": [len(run.curves["round"]) for run in runs],
        }
        table = tidy([(run.row, run.curves) for run in runs])
        write_table(self.path / f"{name}{TABLE}", table, json.dumps(about))
        self.add(f"{name}{TABLE}")
        if any(run.clients for run in runs):
            write_table(self.path / f"{name}{CLIENTS}", tidy(_by_client(runs)))
            self.add(f"{name}{CLIENTS}")

    def read_runs(self, name: str) -> list[Run]:
        """Read back what `write_runs` wrote as `name`.parquet."""
        path = self.path / f"{name}{TABLE}"
        table, words = read_table(path, self.read(f"{name}{TABLE}"))
        if words is None:
            raise Damaged(f"{path} does not hold runs of a study")
        about = files.parse_json(words)
        ends = np.cumsum(about["points"])[:-1]
        curves = _split(columns_of(table), ends, IDENTITY)
        clients: Sequence[Columns] = [{}] * len(curves)
        if (beside := f"{name}{CLIENTS}") in self.files:
            columns = columns_of(read_table(self.path / beside, self.read(beside))[0])
            each = len(columns["client"]) // len(curves)
            places = each * np.arange(1, len(curves))
            clients = _split(columns, places, (*IDENTITY, "client"))
        return [
            # Where tables are put together, a metric that a run lacks is NaN.
            Run(row, {k: v for k, v in metrics.items() if not _all_nan(v)}, clients=by_client)
            for row, metrics, by_client in zip(about["rows"], curves, clients, strict=True)
        ]


def _by_client(runs: Iterable[Run]) -> list[tuple[dict[str, Any], Columns]]:
    """What runs have of each client, with the clients' numbers."""
    return [
        (run.row, {"client": np.arange(len(next(iter(run.clients.values())))), **run.clients})
        for run in runs
        if run.clients
    ]


def _split(columns: Columns, places: Any, without: tuple[str, ...]) -> list[dict[str, np.ndarray]]:
    """Take tidy columns apart into those of each run."""
    parts = {k: np.split(v, places) for k, v in columns.items() if k not in without}
    return [{k: v[i] for k, v in parts.items()} for i in range(len(places) + 1)]


def _all_nan(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" and len(values) > 0 and bool(np.isnan(values).all())


@dataclass(frozen=True, eq=False)
class Study:
    """A study that has ended, read back from its folder.

    `Study.load("runs/study")` reads one; `table`, `summary` and `model` give what it found.
    """

    folder: Path
    manifest: dict[str, Any]
    runs: list[Run]
    participants: dict[str, Participants]  # by scenario, for the first seed

    @classmethod
    def load(cls, path: str | Path, *more: str | Path) -> "Study":
        """Read the folder of a study; with more folders of it, put their seeds together.

        Raises:
            ValueError: If a folder holds no results, or damaged ones, or if folders are of
                different studies.
        """
        if more:
            from focusfl.studies.merge import pool

            return pool([cls.load(folder) for folder in (path, *more)])
        folder = Path(path)
        manifest = read_manifest(folder)
        with _remedy():
            try:
                return cls(folder, manifest, *_contents(Folder(folder, manifest)))
            except (LookupError, TypeError, AttributeError) as error:
                words = f"{folder / MANIFEST} does not fit the files beside it"
                raise Damaged(f"{words} ({error!r})") from None

    def table(self) -> "pd.DataFrame":
        """All curves as a tidy data frame: a row per run and evaluated round."""
        pandas()
        return tidy([(run.row, run.curves) for run in self.runs]).to_pandas()

    def clients(self) -> "pd.DataFrame":
        """What the last models are to each client, of runs with per_client = true, as a tidy
        data frame: a row per run and client."""
        pandas()
        parts = _by_client(self.runs)
        return tidy(parts).to_pandas() if parts else pandas().DataFrame()

    def summary(self) -> "pd.DataFrame":
        """A data frame with a row for every run: where it ended, and what it was judged to be."""
        return pandas().DataFrame([run.row for run in self.runs])

    def model(self, **run: Any) -> Tree:
        """Read the model of one run.

        Args:
            run: which one, by what tells runs apart: algorithm="focus",
                participation="full", lr=0.1, local_steps=5, seed=0. As few as will do.

        Raises:
            ValueError: If the file is damaged, or no model fits, or several do.
        """
        if strange := set(run) - set(IDENTITY):
            raise ValueError(unknown("property of a run", min(strange), IDENTITY))
        rows = [each.row for each in self.runs]
        fitting = [row for row in rows if all(row[name] == value for name, value in run.items())]
        saved = [row for row in fitting if row.get("model")]
        if len(saved) != 1:
            what = f"{len(saved)} runs" if fitting else "no run"
            values = {name: sorted({str(row[name]) for row in saved}) for name in IDENTITY}
            choices = [f"{k}: {', '.join(v)}" for k, v in values.items() if len(v) > 1]
            hint = f" Choose by {'; '.join(choices)}." if choices else ""
            raise ValueError(f"{self.folder} has {what} with a saved model like {run}.{hint}")
        with _remedy():
            Folder(self.folder, self.manifest).read(saved[0]["model"])
            return read_model(self.folder / saved[0]["model"])


def _contents(here: Folder) -> tuple[list[Run], dict[str, Participants]]:
    """Read the runs of a study, and who took part in each scenario."""
    runs = [run for name in here.about["groups"] for run in here.read_runs(name)]
    by_identity = {identity(run.row): run for run in runs}
    runs = [by_identity[identity(row)] for row in here.about["runs"]]
    table, _ = read_table(here.path / PARTICIPATION, here.read(PARTICIPATION))
    columns, participants = columns_of(table), {}
    for scenario in here.about["scenarios"]:
        at = columns["participation"] == scenario
        participants[scenario] = columns["round"][at], columns["client"][at]
    return runs, participants


def save(
    folder: Path | Folder,
    about: Mapping[str, Any],
    runs: list[Run],
    participants: Mapping[str, Participants],
    groups: Sequence[str] | None = None,
) -> None:
    """Complete a folder: who took part, and a manifest of all runs.

    Args:
        groups: names of the files that hold the runs; None: they are to be written.
    """
    import pyarrow as pa

    here = folder if isinstance(folder, Folder) else Folder(folder)
    if groups is None:
        groups = [WHOLE]
        here.write_runs(WHOLE, runs)
        here.add(*(run.row["model"] for run in runs if run.row.get("model")))
    scenarios = [repeated(scenario, len(rounds)) for scenario, (rounds, _) in participants.items()]
    rounds, clients = map(np.concatenate, zip(*participants.values(), strict=True))
    present = pa.table(
        {
            "participation": pa.chunked_array(scenarios).unify_dictionaries(),
            "round": column(rounds.astype(np.int32)),
            "client": column(clients.astype(np.int32)),
        }
    )
    write_table(here.path / PARTICIPATION, present)
    here.add(PARTICIPATION)
    here.save({**about, "runs": [run.row for run in runs], "groups": list(groups)})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a study that has ended, or of a deployment."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; name the folder of a study.")
    if "runs" not in (manifest := manifest_so_far(folder)):
        raise ValueError(
            f"{folder} holds no results: there is no {MANIFEST} of a study that has ended. "
            "`focusfl run` writes one."
        )
    return manifest


def manifest_so_far(folder: Path) -> dict[str, Any]:
    """Read a manifest, also that of a study that has not ended; nothing if there is none."""
    file = folder / MANIFEST
    if not file.is_file():
        return {}
    with _remedy():
        content, seal = files.read(file)
        try:
            manifest = files.parse_json(content)
            format_ = manifest.get("format")
        except (ValueError, AttributeError) as error:
            raise Damaged(f"{file} is damaged ({error})") from None
        if format_ != FORMAT:
            words = f"has format {format_!r}; this version of focusfl reads {FORMAT}"
            raise Damaged(f"{file} {words}")
        if seal is None:
            raise Damaged(f"{file} is damaged: its checksum is gone")
    return manifest


@contextmanager
def _remedy() -> Iterator[None]:
    """Let a damaged file be named together with what would do."""
    try:
        yield
    except Damaged as error:
        raise Damaged(f"{error}. {AGAIN}") from None


def identity(row: Mapping[str, Any]) -> tuple:
    """What tells a run of a study from all others."""
    return tuple(row[name] for name in IDENTITY)


def name_of(keys: Iterable[str]) -> str:
    """Name a file by the keys of what it holds."""
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]


def check_ours(folder: Path) -> None:
    """Raise ValueError if a folder has files, and nothing shows that they are ours.

    What shows it is the lock of `alone`, or a file of a study or of the suite with its
    checksum. Hidden files may be anybody's: nothing of ours has such a name.
    """
    if not folder.is_dir() or (folder / RUNS / LOCK).is_file():
        return
    names = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    if names and not any(_sealed(folder / name) for name in (MANIFEST, f"{WHOLE}.json")):
        raise ValueError(
            f"{folder} holds files that focusfl did not write ({shown(names)}), and some could "
            "be replaced. Name a new or empty folder with --out, or that of a study."
        )


def _sealed(file: Path) -> bool:
    try:
        return files.read(file)[1] is not None
    except (OSError, Damaged):
        return False


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only one who computes in a folder; ValueError if it is somebody else's."""
    check_ours(folder)
    runs = folder / RUNS
    runs.mkdir(parents=True, exist_ok=True)
    with open(runs / LOCK, "w") as lock:
        try:
            free = files.take_lock(lock.fileno())
        except OSError:
            free = False
        if not free:
            raise ValueError(
                f"another focusfl is running a study in {folder}; wait for it, or name "
                "another folder with --out."
            )
        for part in runs.glob(".part-*"):  # of one that was killed while it wrote
            part.unlink(missing_ok=True)
        yield


def environment() -> dict[str, Any]:
    """Versions and hardware that a result depends on."""
    import jax

    return {
        "focusfl": __version__,
        **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
    }


def commit() -> str | None:
    """The commit of the folder a study is run in, if git knows one."""
    try:
        git = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return git.stdout.strip() if git.returncode == 0 else None

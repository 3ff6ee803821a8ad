"""Finished runs as files: a table of their curves, which says their rows as well.

It is sealed (see `files`), and says the seal of what is beside it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from focusfl.core.files import Damaged
from focusfl.studies.tables import (
    IDENTITY,
    Columns,
    columns_of,
    read_table,
    tidy,
    write_table,
)

FORMAT = 4  # 3 had no seals, 2 other words; 1 repeated metrics that were not evaluated
UNSEALED = 3  # of results that can be read as well
CURVES, CLIENTS = "results.parquet", "clients.parquet"
BESIDE = ".clients"  # in the place of .parquet, what runs are to clients
# All but the first summed up; older results have no bytes.
AXES = ("round", "vectors_sent", "gradients", "seconds", "bytes_up")
LOSS = "loss"  # of the measures below, the one that says nothing of the optimum


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


def axes_of(runs: Iterable[Run]) -> list[str]:
    """Those of AXES that all of these runs know."""
    whole = list(runs)
    return [axis for axis in AXES if all(axis in run.curves for run in whole)]


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


def write_runs(path: Path, runs: list[Run]) -> str:
    """Keep finished runs: one file, there whole or not at all; give its checksum.

    What models are to clients is beside it, written first.
    """
    about = {
        "format": FORMAT,
        "rows": [run.row for run in runs],
        "points": [len(run.curves["round"]) for run in runs],
        "clients": _write_clients(clients_of(path), runs),
    }
    table = tidy([(run.row, run.curves) for run in runs])
    return write_table(path, table, json.dumps(about))


def read_runs(path: Path, seal: str | None = None) -> list[Run]:
    """Read back what `write_runs` wrote; what has this checksum, if one is given.

    Raises:
        Damaged: If it is not as it was written, or is another.
    """
    about, table = _opened(path, seal)
    curves, runs, start = columns_of(table), [], 0
    for row, points in zip(about["rows"], about["points"], strict=True):
        stop = start + points
        own = {k: v[start:stop] for k, v in curves.items() if k not in IDENTITY}
        runs.append(Run(row, {k: v for k, v in own.items() if _told(v)}))
        start = stop
    beside = clients_of(path)
    if not about.get("clients", beside.is_file()):  # an older one says nothing of it
        return runs
    theirs = columns_of(read_table(beside, about.get("clients"))[0])
    parts = np.split(np.arange(len(theirs["client"])), len(runs))
    drop = (*IDENTITY, "client")
    return [
        replace(run, clients={k: v[at] for k, v in theirs.items() if k not in drop})
        for run, at in zip(runs, parts, strict=True)
    ]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows alone."""
    return _opened(path)[0]["rows"]


def check_format(path: Path, found: Any, seal: str | None) -> None:
    """Raise unless this focusfl reads it: a newer format has a seal, an older none."""
    if found not in (FORMAT, UNSEALED):
        raise Damaged(f"{path} has format {found!r}; this version of focusfl reads {FORMAT}")
    if (found == FORMAT) != (seal is not None):
        raise Damaged(f"{path} is damaged: its checksum is gone")


def clients_of(path: Path) -> Path:
    """Where the clients of these runs are told."""
    return path.with_name(CLIENTS) if path.name == CURVES else path.with_suffix(BESIDE)


def _opened(path: Path, seal: str | None = None) -> tuple[dict[str, Any], Any]:
    """What is said of runs, and their curves."""
    table, words, seal = read_table(path, seal)
    if words is None:
        raise Damaged(f"{path} does not hold runs that focusfl kept")
    about = json.loads(words)
    check_format(path, about["format"], seal)
    return about, table


def _write_clients(path: Path, runs: list[Run]) -> str | None:
    """Write what the last models are to each client; nothing if nobody has asked."""
    if not any(run.clients for run in runs):
        path.unlink(missing_ok=True)  # of an earlier study
        return None
    table = tidy(
        [
            (run.row, {"client": np.arange(len(next(iter(run.clients.values())))),
                       **run.clients})
            for run in runs
        ]
    )  # fmt: skip
    return write_table(path, table)


def _told(values: np.ndarray) -> bool:
    """Whether a run has this metric: where tables are put together, gaps are NaN."""
    return not (values.dtype.kind == "f" and len(values) and np.isnan(values).all())

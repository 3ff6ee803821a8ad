"""Results that several people have sent, put together: of the suite, and of studies."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from focusfl.studies.store import Study, manifest_so_far
from focusfl.suite.store import Row, Store, in_order
from focusfl.suite.tables import Table

APART = 0.02  # by which two measurements of one thing may differ: machines round


class Board(NamedTuple):
    """What was sent."""

    rows: list[Row]  # of the suite
    studies: list[Study]
    sent: Table  # who sent what
    doubts: Table  # of what was measured twice: where it is not the same


def gathered(folders: Sequence[Path]) -> Board:
    """Read folders of `focusfl suite run` and of `focusfl run`.

    What two folders have of the same code in the same cell is counted once. A method
    that has the name of another one and is not the same is called by its folder too.

    Raises:
        ValueError: If a folder has neither, or its files are damaged.
    """
    rows: dict[tuple[str, str], tuple[Row, Path]] = {}
    studies, sent, doubts = [], [], []
    for folder in dict.fromkeys(folders):
        if "runs" in manifest_so_far(folder):
            studies.append(study := Study.load(folder))
            algorithms = len({run.row["algorithm"] for run in study.runs})
            sent.append((str(folder), "a study", str(len(study.runs)), str(algorithms)))
            continue
        results = Store(folder).rows()
        if not results:
            raise ValueError(f"there are no results of the suite in {folder}, nor of a study.")
        methods = len({row.entrant for row in results})
        sent.append((str(folder), "the suite", str(len(results)), str(methods)))
        for row in results:
            first, source = rows.setdefault((row.cell, row.entrant), (row, folder))
            if first.key != row.key:
                row = row._replace(entrant=f"{row.entrant} · {folder.name}")
                rows[row.cell, row.entrant] = row, folder
            elif _differ(first.value, row.value):
                doubts.append(
                    (row.cell, row.entrant, f"{first.value:.5g}", str(source),
                     f"{row.value:.5g}", str(folder))
                )  # fmt: skip
    return Board(
        in_order(row for row, _ in rows.values()),
        studies,
        Table("Who sent what", ("folder", "of", "results", "methods"), sent, ""),
        Table(
            "Measured twice, and not the same",
            ("cell", "method", "counted", "of", "not counted", "of"),
            doubts,
            f"The same code in the same cell, more than {APART:.0%} apart: one of them "
            "was not measured by this rule, or not with this code.",
        ),
    )


def _differ(a: float, b: float) -> bool:
    if not (np.isfinite(a) and np.isfinite(b)):
        return a != b
    return abs(a - b) > APART * max(abs(a), abs(b))

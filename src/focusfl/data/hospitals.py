"""Patients of real hospitals, one client each, as in FLamby.

Terrail et al. NeurIPS 2022. https://arxiv.org/abs/2210.04620
"""

import csv
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from focusfl.core.validation import check_one_of, reals
from focusfl.data.places import Place, find

CENTERS = ("cleveland", "hungarian", "switzerland", "va")
REGIONS = ("Northeast", "South", "West", "Midwest", "Europe", "Canada")
COLUMNS = ("age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num").split()
# Dropped: hardly anybody outside Cleveland has them.
DROPPED = ("slope", "ca", "thal")
CATEGORIES = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}  # the first is all zeros
MISSING = ("drop", "mean")

Features = Float[np.ndarray, "_ features"]


class Hospitals(NamedTuple):
    """Patients of hospitals, and whether they have heart disease."""

    x: Float[np.ndarray, "patients features"]
    y: Float[np.ndarray, " patients"]  # 1 diseased, 0 not
    center: Int[np.ndarray, " patients"]  # place in `names`
    names: tuple[str, ...]  # of the hospitals
    features: tuple[str, ...]


class Survival(NamedTuple):
    """Patients, and how long they lived."""

    x: Float[np.ndarray, "patients features"]
    time: Float[np.ndarray, " patients"]  # until death, or until last seen alive
    event: Bool[np.ndarray, " patients"]  # whether the patient died
    region: Int[np.ndarray, " patients"]  # the client: place in `names`
    train: Bool[np.ndarray, " patients"]  # for training; the rest is for tests
    names: tuple[str, ...]  # of the regions or centres
    features: tuple[str, ...]


def heart_disease(data_dir: Place = None, missing: str = "drop") -> Hospitals:
    """Load UCI Heart Disease: four hospitals, 13 features, disease or not.

    As in FLamby, slope, ca and thal, mostly missing, are left out, and cp and restecg become
    indicators of all categories but the first. Switzerland recorded a cholesterol of 0 for
    every patient; it is left as it is.

    Args:
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        missing: "drop" patients with missing values as FLamby does (740 remain: 303, 261, 46
            and 130), or keep all 920 and use the "mean" of their hospital.

    Raises:
        ValueError: If data are missing or damaged, or `missing` is another word.
    """
    check_one_of("missing", missing, MISSING)
    tables = [_read_patients(path) for path in find("heart_disease", data_dir)]
    center = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    columns = dict(zip(COLUMNS, np.concatenate(tables).T, strict=True))
    y = (columns.pop("num") > 0).astype(float)
    features = _encode(columns)
    x = np.stack(list(features.values()), 1)
    if missing == "drop":
        whole = ~np.isnan(x).any(1)
        x, y, center = x[whole], y[whole], center[whole]
    for i in range(len(tables)):
        rows = center == i
        x[rows] = np.where(np.isnan(x[rows]), np.nanmean(x[rows], 0), x[rows])
    return Hospitals(x, y, center, CENTERS, tuple(features))


def tcga_brca(data_dir: Place = None) -> Survival:
    """Load Fed-TCGA-BRCA: survival of 1088 patients, 39 features, six regions.

    These are the patients of brca.csv that FLamby's split names, in the order of that file,
    with that split; time is in days.

    Raises:
        ValueError: If data are missing or damaged.
    """
    table, split = find("tcga_brca", data_dir)
    folds = _read_folds(split)
    header, *rows = _rows(table) or [[]]
    patients = [(line, row) for line, row in enumerate(rows, 2) if row and row[0] in folds]
    if not patients:
        raise ValueError(f"{table} must hold patients that {split} names; got none.")
    if len(header) < 3:
        raise ValueError(f"{table} must have a pid, features, E and T; got {','.join(header)!r}.")
    numbers = np.array(
        [_numbers(row[1:], len(header) - 1, f"{table}, line {n}") for n, row in patients]
    )
    x, event, time = numbers[:, :-2], numbers[:, -2] == 1, numbers[:, -1]
    parts, regions = zip(*(folds[row[0]] for _, row in patients), strict=True)
    return Survival(
        x, time, event, np.array(regions), np.array(parts) == "train", REGIONS, tuple(header[1:-2])
    )


def standardise(x: Features, by: Features | None = None) -> Features:
    """Give every feature mean 0 and standard deviation 1.

    Hospitals can compute both from sums, without showing patients.

    Args:
        x: features, (rows, columns).
        by: the rows whose mean and deviation are used; None: x.

    Raises:
        ValueError: If an array has another shape, or is not finite.
    """
    x = reals("x", x, ("row", "column"))
    known = x if by is None else reals("by", by, ("row", "column"))
    spread = known.std(0)
    return (x - known.mean(0)) / np.where(spread > 0, spread, 1)


def _read_patients(path: Path):
    rows = enumerate(_rows(path), 1)
    return np.array([_numbers(row, len(COLUMNS), f"{path}, line {n}") for n, row in rows])


def _rows(path: Path) -> list[list[str]]:
    """Read a file of commas; ValueError if it is none."""
    try:
        with open(path, newline="") as file:
            return list(csv.reader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"cannot read {path} as a table with commas: {error}.") from None


def _numbers(cells: list[str], count: int, where: str) -> list[float]:
    try:
        numbers = [np.nan if cell == "?" else float(cell) for cell in cells]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise ValueError(
            f"{where}: must have {count} numbers or question marks; got {','.join(cells)!r}."
        )
    return numbers


def _read_folds(path: Path) -> dict[str, tuple[str, int]]:
    """Read the part, "train" or "test", and the region of each patient."""
    folds, (header, *rows) = {}, _rows(path) or [[]]
    for number, cells in enumerate(rows, 2):
        row = dict(zip(header, cells, strict=False))
        fold = re.fullmatch(r"(train|test)_(\d)", row.get("fold2", ""))
        if "pid" not in row or not fold or int(fold[2]) >= len(REGIONS):
            raise ValueError(
                f"{path}, line {number}: must have a pid, and a fold2 like train_0 "
                f"for one of {len(REGIONS)} regions; got {row}."
            )
        folds[row["pid"]] = fold[1], int(fold[2])
    return folds


def _encode(columns):
    plain = {
        name: column for name, column in columns.items() if name not in (*DROPPED, *CATEGORIES)
    }
    indicators = {
        f"{name}_{kind}": np.where(np.isnan(columns[name]), np.nan, columns[name] == kind)
        for name, kinds in CATEGORIES.items()
        for kind in kinds[1:]
    }
    return plain | indicators

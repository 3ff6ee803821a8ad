"""Patients of real hospitals, one client each, as in FLamby.

Terrail et al. NeurIPS 2022. https://arxiv.org/abs/2210.04620
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from focusfl.data.places import Place, find

HEART = "https://archive.ics.uci.edu/dataset/45/heart+disease"
BRCA = "https://github.com/owkin/FLamby, flamby/datasets/fed_tcga_brca"
CENTERS = ("cleveland", "hungarian", "switzerland", "va")
REGIONS = ("Northeast", "South", "West", "Midwest", "Europe", "Canada")
COLUMNS = (
    "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num"
).split()
# Dropped: hardly anybody outside Cleveland has them.
DROPPED = ("slope", "ca", "thal")
CATEGORIES = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}  # the first is all zeros
MISSING = ("drop", "mean")


class Hospitals(NamedTuple):
    """Who has heart disease?"""

    x: Float[np.ndarray, "patients features"]
    y: Float[np.ndarray, " patients"]  # 1 diseased, 0 not
    center: Int[np.ndarray, " patients"]  # place in `names`
    names: tuple[str, ...]  # of the hospitals
    features: tuple[str, ...]


class Survival(NamedTuple):
    """Who lived how long with breast cancer?"""

    x: Float[np.ndarray, "patients features"]
    time: Float[np.ndarray, " patients"]  # days to death, or to when last seen alive
    event: Bool[np.ndarray, " patients"]  # whether it was death
    region: Int[np.ndarray, " patients"]  # place in `names`
    train: Bool[np.ndarray, " patients"]  # FLamby's split; the rest is for tests
    names: tuple[str, ...]  # of the regions
    features: tuple[str, ...]


def heart_disease(
    data_dir: Place = None, missing: str = "drop", standardise: bool = False
) -> Hospitals:
    """Load UCI Heart Disease: four hospitals, 13 features, disease or not.

    As in FLamby: slope, ca and thal, mostly missing, are left out; cp and restecg
    become indicators of all categories but the first. `missing` is what to make of
    the holes that remain: "drop" those patients as FLamby does (740 remain, 303, 261,
    46 and 130), or keep all 920 and fill in the "mean" of the same hospital.

    Switzerland recorded a cholesterol of 0 for everybody; it is left as it is.
    """
    if missing not in MISSING:
        raise ValueError(
            f"missing must be one of {', '.join(MISSING)}; got {missing!r}."
        )
    files = [f"fed_heart_disease/processed.{name}.data" for name in CENTERS]
    how = f"The files are at {HEART}."
    paths = find("heart_disease", [files], how, data_dir)
    tables = [_read_patients(path) for path in paths]
    center = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    columns = dict(zip(COLUMNS, np.concatenate(tables).T, strict=True))
    y = (columns.pop("num") > 0).astype(float)
    features = _encode(columns)
    x = np.stack(list(features.values()), 1)
    if missing == "drop":
        whole = ~np.isnan(x).any(1)
        x, y, center = x[whole], y[whole], center[whole]
    for i in range(len(tables)):
        mine = center == i
        x[mine] = np.where(np.isnan(x[mine]), np.nanmean(x[mine], 0), x[mine])
    x = _standardise(x) if standardise else x
    return Hospitals(x, y, center, CENTERS, tuple(features))


def tcga_brca(data_dir: Place = None, standardise: bool = False) -> Survival:
    """Load Fed-TCGA-BRCA: survival of 1088 patients, 39 features, six regions.

    The patients of brca.csv that FLamby's split names, in the order of that file.
    """
    files = [f"fed_tcga_brca/{name}.csv" for name in ("brca", "train_test_split")]
    how = f"The files are at {BRCA}."
    table, split = find("tcga_brca", [files], how, data_dir)
    with open(split, newline="") as file:
        folds = {row["pid"]: row["fold2"].split("_") for row in csv.DictReader(file)}
    with open(table, newline="") as file:
        header, *rows = csv.reader(file)
    rows = [row for row in rows if row[0] in folds]
    numbers = np.array([row[1:] for row in rows], float)
    x, event, time = numbers[:, :-2], numbers[:, -2] == 1, numbers[:, -1]
    parts, regions = zip(*(folds[row[0]] for row in rows), strict=True)
    return Survival(
        _standardise(x) if standardise else x,
        time,
        event,
        np.array(regions, int),
        np.array(parts) == "train",
        REGIONS,
        tuple(header[1:-2]),
    )


def _read_patients(path: Path):
    table = []
    with open(path, newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            try:
                numbers = [np.nan if cell == "?" else float(cell) for cell in row]
            except ValueError:
                numbers = []
            if len(numbers) != len(COLUMNS):
                raise ValueError(
                    f"{path}, line {number}: must have {len(COLUMNS)} numbers or "
                    f"question marks; got {','.join(row)!r}."
                )
            table.append(numbers)
    return np.array(table)


def _encode(columns):
    plain = {
        name: column
        for name, column in columns.items()
        if name not in (*DROPPED, *CATEGORIES)
    }
    indicators = {
        f"{name}_{kind}": np.where(
            np.isnan(columns[name]), np.nan, columns[name] == kind
        )
        for name, kinds in CATEGORIES.items()
        for kind in kinds[1:]
    }
    return plain | indicators


def _standardise(x):
    # Over all clients: sums that hospitals can share without showing patients.
    spread = x.std(0)
    return (x - x.mean(0)) / np.where(spread > 0, spread, 1)

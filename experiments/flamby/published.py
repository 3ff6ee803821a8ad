"""FLamby's published tables: what each method came to, and at which steps."""

import csv
from collections.abc import Mapping
from typing import NamedTuple

from flamby.federations import Federation

from focusfl.core.validation import check_count
from focusfl.data import Entry, File
from focusfl.data.places import Place, find

SEEDS = (42, 43, 44, 45, 46)
POOLED = "Pooled Test"
COLUMNS = ("Method", "Test", "Metric", "learning_rate", "server_learning_rate", "mu")
URL = (
    "https://raw.githubusercontent.com/owkin/FLamby/edacf54d5211520583b0133d55ac39b6fda8324b/"
    "flamby/results/results_benchmark_fed_"
)
BLOBS = {  # the hashes that git has of the files, by seed
    "heart_disease/heart": (
        "fc976120c6c92db95d05b5a0a61899dd1fa4c4e8",
        "a50acbd4f1eb4543d72324fb1289031d9be51d04",
        "1780a0e6bb3ed27eba1e035335022126841d3a3b",
        "842f2a11752c49ea8df17a93dbcdd688873b0d77",
        "517c894694474b288458fa165583444668788116",
    ),
    "tcga_brca/tcga": (
        "87f08634d52616a157808a343f3d002c37be217c",
        "fc24ababe6d4e834009a12ef2c55a7ce53c92d30",
        "4e7c6e2876f823e8d762bd59955eba6b15fdbd63",
        "ff80c01701c37e36fbafe3bb00dc47d2d80716df",
        "7bc795fa4728fa56cdcb01562d0b7dd8af4fad97",
    ),
}
RESULTS = Entry(
    "flamby_results", "FLamby's published results on its two sets of tables", None,
    "MIT", "Ogier du Terrail et al., FLamby, NeurIPS 2022", "",
    tuple(
        File(
            f"flamby_results/{name.partition('/')[2]}_seed{seed}.csv",
            f"{URL}{name}_seed{seed}.csv", f"git-blob:{blob}", None,
        )
        for name, blobs in BLOBS.items()
        for seed, blob in zip(SEEDS, blobs, strict=True)
    ),
)  # fmt: skip


class Row(NamedTuple):
    """One method with one seed."""

    method: str
    lr: float
    server_lr: float | None
    mu: float | None
    values: Mapping[str, float]  # by test set: accuracy, or concordance


def published(federation: Federation, seed: int, data_dir: Place = None) -> list[Row]:
    """Read a table: a row for every method, in FLamby's order.

    Raises:
        ValueError: If the file is not there, or is no table of this federation.
    """
    check_count("seed", seed, least=0)
    name = f"{federation.name}_seed{seed}.csv"
    files = {path.name: path for path in find(RESULTS, data_dir)}
    if name not in files:
        raise ValueError(f"FLamby published no {name}; it has {', '.join(sorted(files))}.")
    file = files[name]
    with open(file, newline="") as text:
        table = csv.DictReader(text)
        lacking = [c for c in COLUMNS if c not in (table.fieldnames or [])]
        if lacking:
            raise ValueError(f"{file} must have a column {lacking[0]}; it has none.")
        rows: dict[str, Row] = {}
        for number, line in enumerate(table, 2):
            try:
                _add(rows, line)
            except (TypeError, ValueError):
                raise ValueError(
                    f"{file}, line {number}: must have a method, a test set, a number "
                    f"as metric and one as learning_rate; got {dict(line)}."
                ) from None
    wanted = set(tests(federation))
    for row in rows.values():
        if set(row.values) != wanted:
            raise ValueError(
                f"{file} must have {', '.join(sorted(wanted))} for {row.method}; got "
                f"{', '.join(sorted(row.values))}."
            )
    return list(rows.values())


def tests(federation: Federation) -> list[str]:
    """What models are judged by: every hospital's patients, then all of them."""
    return [f"client_test_{i}" for i in range(len(federation.test))] + [POOLED]


def _add(rows: dict[str, Row], line: Mapping[str, str]) -> None:
    server_lr, mu = (
        float(line[name]) if line[name] else None for name in ("server_learning_rate", "mu")
    )
    method = line["Method"].removesuffix("100")  # local updates
    new = Row(method, float(line["learning_rate"]), server_lr, mu, {})
    row = rows.setdefault(method, new)
    rows[method] = row._replace(values={**row.values, line["Test"]: float(line["Metric"])})

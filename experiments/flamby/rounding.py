"""Which cells of FLamby's tables does rounding decide?

Trains every method in single and in double precision, on the same batches from the same
start, and counts the cells that differ.

    FOCUSFL_DATA=... python experiments/flamby/rounding.py
"""

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from flamby.cells import EQUAL
from flamby.federations import Federation, Part, federation
from flamby.methods import judged, models
from flamby.problem import TableOfBatches
from flamby.published import SEEDS, published


def doubled(fed: Federation) -> Federation:
    """The same numbers with more digits behind them."""

    def more(part: Part) -> Part:
        return Part(*(column.astype(float) for column in part))

    train, test, pooled = (tuple(map(more, parts)) for parts in (fed.train, fed.test, fed.pooled))
    return replace(fed, train=train, test=test, pooled=pooled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    quick = parser.parse_args().quick
    for name in ("heart", "tcga"):
        try:
            fed, differ, all_of_them = federation(name), Counter(), Counter()
        except ValueError as error:
            parser.exit(2, f"{error}\n")
        for seed in SEEDS[:1] if quick else SEEDS:
            rows = published(fed, seed)
            TableOfBatches.dtype = "float32"
            single = models(fed, rows, seed)
            TableOfBatches.dtype = "float64"
            double = models(doubled(fed), rows, seed)
            for method, x in single.items():
                here, there = judged(fed, x), judged(fed, double[method])
                gaps = np.array([here[test] - there[test] for test in here])
                differ[method] += int((abs(gaps) > EQUAL).sum())
                all_of_them[method] += len(gaps)
        for method, count in differ.items():
            print(f"{name} {method}: {count} of {all_of_them[method]} cells differ")


if __name__ == "__main__":
    main()

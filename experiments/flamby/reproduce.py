"""Train FLamby's published tables anew, cell by cell.

    python experiments/flamby/reproduce.py                 # a minute of one core
    python experiments/flamby/reproduce.py --tables heart
    python experiments/flamby/reproduce.py --rare          # the row nobody has; minutes

Terrail et al. NeurIPS 2022. https://arxiv.org/abs/2210.04620
Models, splits, batches, rounds and steps are those of its public code when the tables
were made; the algorithms are this library's.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from flamby import tables
from flamby.cells import cells
from flamby.rare import lines

from focusfl.cli.options import OUT, words
from focusfl.core.files import write
from focusfl.studies.report import terminal
from focusfl.studies.report.table import markdown
from focusfl.studies.store import environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--tables", type=words, default=["heart", "tcga"], metavar="A,B",
        help="of heart (Fed-Heart-Disease) and tcga (Fed-TCGA-BRCA) only these",
    )  # fmt: skip
    parser.add_argument(
        "--rare", action="store_true",
        help="instead: all methods with the first hospital online 5 %% of the time",
    )  # fmt: skip
    OUT.add(parser)
    options = parser.parse_args()
    folder = options.out or Path("runs/reproduce-flamby")
    try:
        _rare(options.tables, folder) if options.rare else _cells(options.tables, folder)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    print(f"written: {folder}")


def _cells(names: list[str], folder: Path) -> None:
    """Train the tables, and write ours beside the published numbers."""
    found = []
    for cell in cells(names, folder):
        if not found or cell[:2] != found[-1][:2]:
            terminal.say(f"{cell.federation}, seed {cell.seed}: trained")
        found.append(cell)
    write(folder / "results.csv", tables.tidy(found))
    write(folder / "manifest.json", json.dumps(environment(), indent=2))
    write(folder / "table.md", tables.markdown(found))
    for table in (*tables.tables(found), tables.outside(found)):
        terminal.print_table(*table)
    print(tables.KEY)


def _rare(names: list[str], folder: Path) -> None:
    """Train the same methods and FOCUS, with one hospital rarely online."""
    found = []
    for line in lines(names, folder):
        terminal.say(f"{line.federation}, {line.method}: trained")
        found.append(line)
    table = tables.rare(found)
    write(folder / "rare.md", f"{table.title}\n\n{markdown(table.headers, table.rows)}")
    terminal.print_table(*table)


if __name__ == "__main__":
    main()

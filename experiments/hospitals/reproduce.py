"""Whom does a model of real hospitals serve, one of which is rarely online?

python experiments/hospitals/reproduce.py hospitals    # half a minute on 2 cores
python experiments/hospitals/reproduce.py survival     # one and a half
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hospitals import serve, tables

from focusfl.cli.options import CHANGES, OUT, WHICH_ALGORITHMS
from focusfl.core.files import write
from focusfl.studies.report import figure, terminal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=serve.NAMES, nargs="?", default=serve.NAMES[0])
    parser.add_argument("--seeds", type=int, default=serve.SEEDS, help="splits (10)")
    parser.add_argument("--quick", action="store_true", help="two seeds: does it run?")
    for option in (CHANGES, WHICH_ALGORITHMS, OUT):
        option.add(parser)
    options = parser.parse_args()
    seeds = 2 if options.quick else options.seeds
    changed = [*["rounds=60"] * options.quick, *options.set]
    try:
        outcome = serve.serve(serve.splits(options.name, changed, options.algorithms, seeds))
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    folder = options.out or Path("runs") / f"reproduce-{options.name}"
    serve.save(outcome, folder)
    write(folder / "table.md", tables.markdown(outcome))
    figure.saved(folder, {"figure": lambda: tables.figure(outcome)})
    for table in tables.tables(outcome):
        terminal.print_table(*table)
    print(f"{tables.KEY}\nwritten: {folder}")


if __name__ == "__main__":
    main()

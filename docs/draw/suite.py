"""Write what the suite's shipped results say into suite.md.

python docs/draw/suite.py                # what the library ships
python docs/draw/suite.py runs/suite     # ship what is in a folder, first
"""

import argparse
from pathlib import Path

from choosing import put

from focusfl.studies.report.table import markdown
from focusfl.suite.store import SHIPPED, Store, load, save
from focusfl.suite.tables import halves, sentence, tables

PAGE = Path(__file__).parent.parent / "suite.md"
SHOWN = "reporting"  # the half that is told of


def text() -> str:
    """What was found, with its tables."""
    own = halves(load()).get(SHOWN, [])
    if not own:
        return "Not run yet."
    cells, names = {row.cell for row in own}, {row.entrant for row in own}
    parts = [
        f"{len(cells)} cells, {len(names)} methods, {sum(r.runs for r in own):,} runs, "
        f"{sum(r.spent for r in own) / 3600:.1f} core hours. {sentence(own)}"
    ]
    for table in tables(own):
        parts += [f"### {table.title}", markdown(table.heads, [*table.rows]).strip()]
        parts.append(table.note)
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="ship what is in it")
    folder = parser.parse_args().folder
    if folder is not None:
        if not (rows := Store(folder).rows()):
            parser.error(f"folder must hold results of the suite; got {folder}")
        save(SHIPPED, rows)
    put("measured", text, PAGE)


if __name__ == "__main__":
    main()

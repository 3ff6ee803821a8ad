"""Write what the suite's shipped results say into suite.md.

python docs/draw/suite.py                # what the library ships
python docs/draw/suite.py runs/suite     # ship what is in a folder, first
"""

import sys
from pathlib import Path

from choosing import put

from focusfl.report.table import markdown
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
        f"{sum(r.spent for r in own) / 3600:.1f} hours of a core. {sentence(own)}"
    ]
    for table in tables(own):
        parts += [f"### {table.title}", markdown(table.heads, [*table.rows]).strip()]
        parts.append(table.note)
    return "\n\n".join(parts)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        save(SHIPPED, Store(Path(sys.argv[1])).rows())
    put("measured", text, PAGE)

"""Write the table of docs/research.md from the folder of this study's runs.

python experiments/absence/draw.py runs/absence
"""

import argparse
import re
from pathlib import Path

import numpy as np

from focusfl.core.files import write
from focusfl.studies import store
from focusfl.studies.report.names import label
from focusfl.studies.report.table import markdown

PAGE = Path(__file__).parents[2] / "docs" / "research.md"
LAST = 5  # evaluations that an accuracy is the mean of
OWN = {"mean": "FOCUS, mean memory", "filtered": "Filtered, rate .2"}


def accuracies(folder: Path) -> dict[tuple[str, str, float], list[float]]:
    """Of every law, algorithm and step: the accuracy in the end, seed by seed; 0 for a
    run that broke."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for run in store.Study.load(folder).runs:
        row = run.row
        end = float(np.mean(run.curves["accuracy"][-LAST:]))
        broke = row["diverged_at"] is not None
        key = row["participation"], row["algorithm"], row["lr"]
        found.setdefault(key, []).append(0.0 if broke else end)
    return found


def shown(ends: list[float]) -> str:
    return ", ".join(f"{end:.3f}"[1:] if end else "†" for end in ends)


def table(found: dict[tuple[str, str, float], list[float]]) -> str:
    heads = ("algorithm", "step", "coins", "long, same step", "step", "long, best step")
    rows = []
    for name in dict.fromkeys(name for _, name, _ in found):
        steps = sorted({lr for _, one, lr in found if one == name})
        best = {
            law: max(steps, key=lambda lr: min(found[law, name, lr]))  # noqa: B023
            for law in ("coins", "long")
        }
        rows.append((
            OWN.get(name) or label(name), f"{best['coins']:g}",
            shown(found["coins", name, best["coins"]]),
            shown(found["long", name, best["coins"]]),
            f"{best['long']:g}", shown(found["long", name, best["long"]]),
        ))  # fmt: skip
    return markdown(heads, rows).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="of the runs of study.toml")
    try:
        found = accuracies(parser.parse_args().folder)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    text = (
        f"Test accuracy in the end, seed by seed; † broke. Steps are the best of those "
        f"tried, by the worse seed.\n\n{table(found)}"
    )
    page = PAGE.read_text()
    mark = r"(<!-- absence -->\n).*?(\n<!-- end -->)"
    write(PAGE, re.sub(mark, lambda m: m[1] + text + m[2], page, flags=re.S))
    print(text)


if __name__ == "__main__":
    main()

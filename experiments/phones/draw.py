"""Draw how far each method is by which hour, and how well it serves each phone, from
the folder of this study's runs; print a table of both.

python experiments/phones/draw.py runs/phones
"""

import argparse
from pathlib import Path

import numpy as np

from focusfl.core.files import write
from focusfl.studies import store
from focusfl.studies.report.figure import blank, render
from focusfl.studies.report.names import label
from focusfl.studies.report.table import markdown

HERE = Path(__file__).parent
DRAWN = ("focus", "mifa", "fedavg")
RARE = 0.25  # of the phones: those with the fewest replies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="of the runs of study.toml")
    try:
        found = store.Study.load(parser.parse_args().folder)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    best: dict[tuple[str, str], store.Run] = {}
    for run in found.runs:
        key = run.row["participation"], run.row["algorithm"]
        if key not in best or end_of(run) < end_of(best[key]):
            best[key] = run
    laws = list(dict.fromkeys(law for law, _ in best))
    phones = len(next(iter(best.values())).clients["loss"])
    counts = {law: np.bincount(found.participants[law][1], None, phones) for law in laws}
    picture = blank(figsize=(9.5, 5.6), layout="constrained")
    panels = picture.subplots(2, len(laws), sharey="row")
    for (above, below), law in zip(panels.T, laws, strict=True):
        for name in DRAWN:
            run, words = best[law, name], label(name)
            hours = np.asarray(run.curves["seconds"]) / 3600
            above.plot(hours, run.curves["distance"], label=words)
            own = np.asarray(run.clients["loss"])
            below.scatter(counts[law] + 1, own, s=9, alpha=0.6, label=words)
        above.set(title=law, xlabel="simulated hours", yscale="log")
        below.set(xlabel="replies of a phone that counted, + 1", xscale="log")
        for panel in (above, below):
            panel.grid(alpha=0.25)
    panels[0, 0].set_ylabel("‖x − x*‖ / ‖x*‖")
    panels[1, 0].set_ylabel("loss on a phone's own data")
    panels[0, 0].legend(frameon=False)
    write(HERE / "phones.png", render(picture, "png"))
    print(table(best, counts))


def end_of(run: store.Run) -> float:
    """The distance in the end; infinite for a run that broke."""
    broke = run.row["diverged_at"] is not None
    return np.inf if broke else float(run.curves["distance"][-1])


def table(best, counts) -> str:
    heads = (
        "server", "method", "step", "hours", "distance", "mean loss", "rarest quarter",
        "never heard",
    )  # fmt: skip
    rows = []
    for (law, name), run in best.items():
        heard, own = counts[law], np.asarray(run.clients["loss"])
        rare = np.argsort(heard, kind="stable")[: int(RARE * len(heard))]
        rows.append(
            (law, label(name), f"{run.row['lr']:.3g}",
             f"{run.curves['seconds'][-1] / 3600:.0f}", f"{end_of(run):.2g}",
             f"{own.mean():.3f}", f"{own[rare].mean():.3f}", str((heard == 0).sum()))
        )  # fmt: skip
    return markdown(heads, rows)


if __name__ == "__main__":
    main()

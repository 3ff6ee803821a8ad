"""Tables and figures of the natural federations, from the folders of their runs.

    python experiments/natural/draw.py runs/natural

adds what is in them to results.json, in place of what the same federation gave before,
and makes table.md and a figure for each of it; without a folder, of results.json alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from focusfl.core.files import write
from focusfl.studies import store
from focusfl.studies.report.figure import blank, render
from focusfl.studies.report.names import label, looks
from focusfl.studies.report.table import markdown

HERE = Path(__file__).parent
LAST = 5  # evaluations that an accuracy in the end is the mean of
OWN = {"focus-mean": "FOCUS, mean memory"}
CURVES = {"round": 0, "megabytes": 4, "minutes": 3, "accuracy": 4, "worst": 4}  # digits
HEADS = (
    "algorithm", "step", "accuracy", "worst client", "rounds", "MB", "minutes",
    "rounds, worst", "MB, worst", "minutes, worst",
)  # fmt: skip
AXES = {"round": "rounds", "megabytes": "MB sent, both ways", "minutes": "minutes"}

Curve = dict[str, Any]


def gathered(folder: Path) -> dict[str, Any]:
    """The runs of a federation, and what they were run on."""
    found = store.Study.load(folder)
    size, table = found.manifest["problem"]["size"], found.manifest["study"]
    curves = []
    for run in found.runs:
        own = {
            "round": run.curves["round"],
            "megabytes": run.curves["vectors_sent"] * size * 4 / 1e6,  # of float32
            "minutes": run.curves["seconds"] / 60,
            "accuracy": run.curves["accuracy"],
            "worst": run.curves["accuracy/worst"],
        }
        name = run.row["algorithm"]
        curves.append(
            {
                **{key: run.row[key] for key in ("algorithm", "lr", "seed")},
                "server_lr": table["algorithms"][name].get("server_lr"),
                "diverged_at": run.row["diverged_at"],
                "clients": [round(float(a), 4) for a in run.clients["accuracy"]],
                **{k: np.round(a, CURVES[k]).tolist() for k, a in own.items()},
            }
        )
    return {
        "environment": found.manifest["environment"],
        "seconds": sum(run.row["seconds"] for run in found.runs) / len(found.runs),
        "rounds": table["rounds"], "size": size, "curves": curves,
    }  # fmt: skip


def by_algorithm(curves: list[Curve]) -> dict[str, list[Curve]]:
    """The runs of every algorithm, a seed each."""
    found: dict[str, list[Curve]] = {}
    for curve in curves:
        found.setdefault(curve["algorithm"], []).append(curve)
    return found


def whole(runs: list[Curve], what: str) -> np.ndarray:
    """A row for every seed, as far as all of them go."""
    shortest = min(len(run[what]) for run in runs)
    return np.array([run[what][:shortest] for run in runs])


def mean(runs: list[Curve], what: str) -> np.ndarray:
    """Over seeds, round by round."""
    return whole(runs, what).mean(0)


def end(run: Curve, what: str) -> str:
    """Where a run ends; or the round in which it broke."""
    if run["diverged_at"] is not None:
        return f"†{run['diverged_at']}"
    return f"{np.mean(run[what][-LAST:]):.3f}"[1:]


def target(curves: list[Curve], what: str) -> float:
    """The largest multiple of .05 that every algorithm's mean over seeds reaches."""
    tops = [mean(runs, what).max() for runs in by_algorithm(curves).values()]
    return int(min(tops) / 0.05 + 1e-9) / 20


def table(curves: list[Curve]) -> list[tuple[str, ...]]:
    """A line for every algorithm: where it ends, and what it takes to a target."""
    lines: list[tuple[str, ...]] = []
    for name, runs in by_algorithm(curves).items():
        step = f"{runs[0]['lr']:g}"
        if runs[0]["server_lr"] is not None:
            step += f", server {runs[0]['server_lr']:g}"
        line = [OWN.get(name) or label(name), step]
        for what in ("accuracy", "worst"):
            line.append(", ".join(end(run, what) for run in runs))
        for what in ("accuracy", "worst"):
            at = int(np.argmax(mean(runs, what) >= target(curves, what)))
            spent = [mean(runs, axis)[at] for axis in AXES]
            line += [f"{spent[0]:.0f}", f"{spent[1]:.1f}", f"{spent[2]:.1f}"]
        lines.append(tuple(line))
    return lines


def figure(curves: list[Curve]) -> Any:
    """Accuracy of all tests and of the worst client: means and ranges over seeds."""
    groups = by_algorithm(curves)
    look = looks(groups)
    sheet = blank(figsize=(8.6, 4.8), layout="constrained")
    grid = sheet.subplots(2, len(AXES), sharey="row")
    for row, what in zip(grid, ("accuracy", "worst"), strict=True):
        for panel, (axis, words) in zip(row, AXES.items(), strict=True):
            for name, runs in groups.items():
                heights = whole(runs, what)
                along, called = mean(runs, axis), OWN.get(name) or label(name)
                panel.plot(along, heights.mean(0), label=called, **look[name])
                panel.fill_between(
                    along, heights.min(0), heights.max(0), color=look[name]["color"],
                    alpha=0.12, lw=0,
                )  # fmt: skip
            panel.set_xlabel(words if what == "worst" else "")
            panel.grid(alpha=0.25, linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("accuracy, all tests")
    grid[1, 0].set_ylabel("accuracy, worst client")
    grid[0, -1].legend(frameon=False, fontsize=9, loc="lower right")
    return sheet


def text(kept: dict[str, Any]) -> str:
    """The tables of all federations."""
    parts = []
    for name, own in kept.items():
        goals = [f"{target(own['curves'], what):.2f}"[1:] for what in ("accuracy", "worst")]
        lead = f"{name}, {own['rounds']} rounds; targets {goals[0]} and {goals[1]}:"
        parts.append(f"{lead}\n\n{markdown(HEADS, table(own['curves']))}")
    return "\n".join(parts)


def draw(folders: list[Path]) -> None:
    """Gather, write, draw."""
    file = HERE / "results.json"
    kept = json.loads(file.read_text()) if file.is_file() else {}
    kept |= {folder.name: gathered(folder) for folder in folders}
    write(file, json.dumps(kept))
    write(HERE / "table.md", text(kept))
    for name, own in kept.items():
        write(HERE / f"{name}.png", render(figure(own["curves"]), "png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, nargs="?")
    out = parser.parse_args().out
    draw([file.parent for file in sorted(out.glob("*/manifest.json"))] if out else [])


if __name__ == "__main__":
    main()

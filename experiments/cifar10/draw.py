"""Table and pictures of the CIFAR-10 study, from the folders that its runs are in.

    python experiments/cifar10/draw.py runs/reproduce-cifar10 ...

adds the curves of all of them to results.json, in place of what the same runs gave
before, and makes table.md, accuracy.png and clients.png of it.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from focusfl import problems
from focusfl.core.files import write
from focusfl.studies import store
from focusfl.studies.report.figure import blank, render
from focusfl.studies.report.names import COLOURS, label, looks
from focusfl.studies.report.table import markdown

HERE = Path(__file__).parent
PAPER, LAST = 2e-3, 10  # the paper's step; evaluations that `final` is the mean of
TUNED = 3000  # rounds of the runs that the chain's steps were found by
AT = (1000, 2000, 4000, 6000, 8000, 10_000)  # rounds
SHOWN = (1000, 2000, 4000, 10_000)  # of these, in the table
# Test accuracy in the public logs of the paper at these rounds. Their baselines train
# through shared storage and are not the algorithms they are named after.
PUBLISHED = {
    "focus": (0.488, 0.609, 0.713, 0.747, 0.780, 0.778),
    "fedau": (0.424, 0.529, 0.642, 0.680, 0.737, 0.751),
    "scaffold": (0.253, 0.303, 0.404, 0.437, 0.473, 0.485),
}
# In the end: the mean of the last ten evaluations, as `final` is; in brackets the last
# one alone, where the mean is not known.
PUBLISHED_FINAL = {"focus": ".788", "fedau": ".747", "scaffold": "(.485)"}
CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()

Curve = dict[str, Any]
Row = tuple[str, str, float]  # participation, algorithm, step size


def gathered(folders: list[Path]) -> dict[str, Any]:
    """The curves of several folders of the study, and what they were run on."""
    found = [store.Study.load(folder) for folder in folders]
    return {
        "environment": found[-1].manifest["environment"],
        "curves": [
            {
                "run": {name: run.row[name] for name in store.IDENTITY}
                | {"rounds": one.manifest["study"]["rounds"]},
                "at": run.curves["round"].tolist(),
                "accuracy": [round(float(a), 4) for a in run.curves["accuracy"]],
                "loss": [float(f"{a:.4g}") for a in run.curves["loss"]],
                "diverged_at": run.row["diverged_at"],
                "tracking_gap": run.row["tracking_gap"],
            }
            for one in found
            for run in one.runs
        ],
    }


def added(old: list[Curve], new: list[Curve]) -> list[Curve]:
    """Curves and new ones, which take the place of those of the same run."""
    runs = [curve["run"] for curve in new]
    return [curve for curve in old if curve["run"] not in runs] + new


def rows(curves: list[Curve], rounds: int | None = None) -> dict[Row, list[Curve]]:
    """The runs of so many rounds, or of the most there are: the paper's step first."""
    length = rounds or max(curve["run"]["rounds"] for curve in curves)
    by_row: dict[Row, list[Curve]] = {}
    for curve in curves:
        run = curve["run"]
        if run["rounds"] == length:
            key = run["participation"], run["algorithm"], run["lr"]
            seeds = by_row.setdefault(key, [])
            if run["seed"] not in [one["run"]["seed"] for one in seeds]:
                seeds.append(curve)
    order = sorted(by_row, key=lambda key: (key[0], key[2] != PAPER))
    return {key: by_row[key] for key in order}


def final(curve: Curve) -> float:
    """The mean of the last accuracies."""
    return float(np.mean(curve["accuracy"][1:][-LAST:]))


def table(curves: list[Curve]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers, and a line for each row: means over seeds, and `final` of every seed."""
    lines = []
    for (scenario, name, lr), runs in rows(curves).items():
        known = PUBLISHED_FINAL.get(name, "") * (scenario == "bernoulli" and lr == PAPER)
        at = [dict(zip(one["at"], one["accuracy"], strict=True)) for one in runs]
        means = [_mean([own.get(round) for own in at]) for round in SHOWN]
        called = name + ", Markov" * (scenario == "markov")
        lines.append((called, f"{lr:g}", *means, ", ".join(map(_end, runs)), known))
    heads = ("algorithm", "step", *(f"{n:,}" for n in SHOWN))
    return (*heads, "final", "published"), lines


def markov_table(
    curves: list[Curve],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers, and a line for each algorithm in the chain: every step that was tried.

    Each has the accuracy of its last evaluations; the best step of all is first.
    """
    tried: dict[str, list[tuple[float, Curve]]] = {}
    for (scenario, name, lr), runs in rows(curves, TUNED).items():
        if scenario == "markov":
            tried.setdefault(name, []).append((lr, runs[0]))
    lines = []
    for name, steps in tried.items():
        held = [(final(one), lr) for lr, one in steps if one["diverged_at"] is None]
        end, best = max(held)
        steps.sort(key=lambda step: step[0])
        others = [f"{lr:g}: {_end(one)}" for lr, one in steps if lr != best]
        lines.append((name, f"{best:g}", _digits(end), ", ".join(others)))
    lines.sort(key=lambda line: line[2], reverse=True)
    return ("algorithm", "best step", f"at {TUNED:,}", "at other steps"), lines


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _digits(np.mean(known)) if len(known) == len(values) else ""


def _held(runs: list[Curve]) -> float:
    """Where those seeds ended that did not break."""
    held = [final(one) for one in runs if one["diverged_at"] is None]
    return float(np.mean(held or 0.0))


def _whole(curve: Curve) -> int:
    """How many of the evaluations were of a model that had not broken."""
    return len(curve["at"]) - (curve["diverged_at"] is not None)


def _end(curve: Curve) -> str:
    broke = curve["diverged_at"]
    return _digits(final(curve)) if broke is None else f"†{broke:,}"


def _digits(share: float | np.floating) -> str:
    return f"{share:.3f}".removeprefix("0")


def accuracy_figure(curves: list[Curve]) -> Any:
    """Accuracy by rounds: at the paper's step, and each at its own; means over seeds.

    The lines of the public logs are dashed.
    """
    shown = {key: runs for key, runs in rows(curves).items() if key[0] == "bernoulli"}
    look = looks(dict.fromkeys(name for _, name, _ in shown))
    # FOCUS stands in both panels: the paper's step is its own.
    best = {key[1]: key for key in sorted(shown, key=lambda key: _held(shown[key]))}
    own = {key: runs for key, runs in shown.items() if best[key[1]] == key}
    paper = {key: runs for key, runs in shown.items() if key[2] == PAPER}
    panels = {"the paper's step": paper, "each at its own step": own}
    figure = blank(figsize=(9.6, 3.8), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True)
    for panel, (title, there) in zip(grid, panels.items(), strict=True):
        for (_, name, lr), runs in there.items():
            # As far as all seeds go; a cross is where the first of them breaks.
            rounds = min((one["at"][: _whole(one)] for one in runs), key=len)
            values = np.array([one["accuracy"][: len(rounds)] for one in runs])
            called = label(name) + f", {lr:g}" * (there is own)
            panel.plot(rounds, values.mean(0), label=called, **look[name])
            panel.fill_between(
                rounds, values.min(0), values.max(0), color=look[name]["color"],
                alpha=0.2, lw=0,
            )  # fmt: skip
            if any(one["diverged_at"] is not None for one in runs):
                end = rounds[-1], values[:, -1].mean()
                panel.plot(*end, "x", color=look[name]["color"], markersize=7, mew=2)
            if there is paper and name in PUBLISHED:
                style = look[name] | {"linestyle": "--", "linewidth": 1.0}
                panel.plot(AT, PUBLISHED[name], marker="o", markersize=3, **style)
        panel.set_title(f"bernoulli, {title}", fontsize=11)
        panel.set_xlabel("rounds")
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=9, loc="lower right")
    grid[0].set_ylabel("test accuracy")
    return figure


def clients_figure(counts: np.ndarray) -> Any:
    """How many samples every client has of each class, as areas."""
    clients, classes = counts.shape
    figure = blank(figsize=(1.6 + 0.27 * clients, 0.9 + 0.3 * classes))
    panel = figure.subplots()
    client, kind = np.nonzero(counts)
    area = 190 * counts[client, kind] / counts.max()
    panel.scatter(client, kind, area, color=COLOURS[0], alpha=0.75, linewidths=0)
    panel.set_yticks(range(classes), CLASSES[:classes])
    panel.set_xticks(range(0, clients, max(1, clients // 16)))
    panel.set(xlabel="client", xlim=(-0.8, clients - 0.2), ylim=(classes - 0.4, -0.6))
    panel.grid(alpha=0.2, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def dealt() -> np.ndarray:
    """How many images of each class every client of the study has."""
    own = problems.cifar10(seed=66).samples["y"]
    return np.stack([np.bincount(y, minlength=len(CLASSES)) for y in own])


def main() -> None:
    """Gather, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    folders = parser.parse_args().folders
    try:
        new, counts = gathered(folders) if folders else {}, dealt()
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    kept = json.loads((HERE / "results.json").read_text())
    if new:
        kept = new | {"curves": added(kept["curves"], new["curves"])}
        write(HERE / "results.json", json.dumps(kept))
    curves = kept["curves"]
    both = markdown(*table(curves)) + "\n" + markdown(*markov_table(curves))
    write(HERE / "table.md", both)
    write(HERE / "accuracy.png", render(accuracy_figure(curves), "png"))
    write(HERE / "clients.png", render(clients_figure(counts), "png"))


if __name__ == "__main__":
    main()

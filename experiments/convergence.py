"""The convergence figure: all algorithms, those as published, and each at its own best step.

    python experiments/convergence.py ridge            # or ridge-public-code, quadratics
    python experiments/convergence.py ridge --set rounds=100 --algorithms focus,mifa

The study is the one that `focusfl reproduce NAME` runs. Added are what the paper's public
code runs under four names (as_published.py), and the best of a grid of steps around the
study's, in the scenarios of the paper's figure.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import focusfl as ff
from focusfl.cli.options import CHANGES, OUT, WHICH_ALGORITHMS
from focusfl.core.files import write
from focusfl.studies import spec, toml
from focusfl.studies.report import figure, table, terminal
from focusfl.studies.report.names import label, looks
from focusfl.studies.runner import RunName, expected, make_run, run
from focusfl.studies.spec import StudySpec
from focusfl.studies.store import Run, environment
from focusfl.studies.summary import summarise
from focusfl.theory.prediction import predict

HERE = Path(__file__).parent
NAMES = ("ridge", "ridge-public-code", "quadratics")
FIGURE = ("full", "uniform", "weighted")  # the scenarios of the paper's figure
GRID = 2.0 ** np.arange(-4, 4.5, 0.5)  # steps that are tried, times that of the study
PUBLISHED = {"fedau": "FedAU", "scaffold": "Scaffold", "mifa": "MIFA", "scaffnew": "Scaffnew"}
FLOOR, CEILING = 1e-17, 1e4
LABELS = {
    "relative error": "‖x − x*‖ / ‖x*‖",
    "relative gradient": "‖∇F(x)‖ / ‖∇F(x₀)‖",
    "loss": "loss",
}
MARKS = {"falling": " ↓", "oscillating": " ~", "unclear": " ?", "absent": " –"}
KEY = (
    "E(k): exact, at 1e-8 in round k. A number: the error in the end; ↓ still falling, "
    "~ up and down, ? cannot be told, – nobody took part. ∞: diverged."
)


def load(name: str, changed: Sequence[str] = (), only: Sequence[str] = ()) -> StudySpec:
    """Read a shipped study and add the algorithms as published."""
    source = toml.read(spec.STUDIES / f"{name}.toml")
    source = source._replace(where=str(HERE / f"{name}.toml"))  # as_published.py lies here
    for algorithm, published in PUBLISHED.items():
        kind = {"kind": f"as_published:Published{published}"}
        source.table["algorithms"][f"{algorithm}_as_published"] = kind
    return spec.build_study(spec.changed(source, changed, only), name, simulated=True)


def tuned(study: StudySpec) -> Iterator:
    """Run every algorithm but those as published at the best step of the grid."""
    for scenario in filter(FIGURE.__contains__, study.participation):
        for name, own in study.algorithms.items():
            if name.endswith("_as_published") or own.noise:
                continue
            (lr,), (local_steps,) = study.step_sizes(scenario, name), study.steps_of(name)
            (seed,) = study.seeds
            law = study.participation[scenario].participation
            tried = ff.sweep(
                own.algorithm, study.problem, law, lrs=(lr * GRID).tolist(), seed=seed,
                rounds=study.rounds, local_steps=local_steps,
                options=ff.Options(on_divergence="ignore"),
            )  # fmt: skip
            best = min(tried, key=lambda result: summarise(result).merit(study.rounds))
            theory = predict(own.algorithm, study.problem, law, lr=best.lr,
                             local_steps=local_steps)  # fmt: skip
            weight = study.problem.total_weight
            summary = summarise(best, expected(theory, study.problem), total_weight=weight)
            where = RunName(scenario, name, local_steps, seed)
            yield make_run(where, best, summary, theory, weight)


def matrix(runs: list[Run]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of algorithms against participation models, as KEY says."""
    scenarios = list(dict.fromkeys(run.row["participation"] for run in runs))
    names = list(dict.fromkeys(run.row["algorithm"] for run in runs))
    found = {(run.row["algorithm"], run.row["participation"]): _entry(run.row) for run in runs}
    rows = [(label(name), *(found[name, scenario] for scenario in scenarios)) for name in names]
    return ("algorithm", *scenarios), rows


def _entry(row: dict[str, Any]) -> str:
    if row["verdict"] == "diverged":
        return "∞"
    if row["verdict"] == "exact":
        return f"E({row['rounds_to_target']})"
    return f"{row['error']:.1e}{MARKS.get(row['verdict'], '')}"


def convergence(runs: list[Run], axes: tuple[str, ...] = ("rounds",)) -> Any:
    """Draw relative error against rounds, or vectors sent; one row for each axis.

    Algorithms as published are dotted, in the colour of the algorithm itself.
    """
    scenarios = list(dict.fromkeys(run.row["participation"] for run in runs))
    names = list(dict.fromkeys(run.row["algorithm"] for run in runs))
    look = looks(names)
    crowd = len(names) > 4
    drawing = figure.blank(
        figsize=(0.8 + 3.1 * len(scenarios) + 1.9 * crowd, 0.4 + 3 * len(axes)),
        layout="constrained",
    )
    grid = drawing.subplots(len(axes), len(scenarios), sharey=True, squeeze=False)
    for row, axis in zip(grid, axes, strict=True):
        for panel, scenario in zip(row, scenarios, strict=True):
            for one in runs:
                if one.row["participation"] == scenario:
                    _curve(panel, one, axis, look[one.row["algorithm"]])
            panel.set_yscale("log")
            panel.set_xlabel(axis)
            panel.grid(alpha=0.25, linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(LABELS[runs[0].row["measure"]])
    for panel, scenario in zip(grid[0], scenarios, strict=True):
        panel.set_title(scenario, fontsize=11)
    if crowd:
        handles = {line.get_label(): line for p in grid[0] for line in p.get_lines()}
        shown = [label(name) for name in names]
        lines = [handles[name] for name in shown]
        drawing.legend(lines, shown, loc="outside right center", frameon=False)
    else:
        grid[0][0].legend(frameon=False)
    return drawing


def _curve(panel, run: Run, axis: str, look: dict[str, Any]) -> None:
    place = run.curves["vectors_sent" if axis == "vectors sent" else "round"]
    distance = np.clip(run.errors, FLOOR, CEILING)
    panel.plot(place, distance, label=label(run.row["algorithm"]), **look)
    if run.row["diverged_at"] is not None:
        panel.plot(place[-1], distance[-1], "x", color=look["color"], label="_")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=NAMES, nargs="?", default="quadratics")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run?")
    for option in (CHANGES, WHICH_ALGORITHMS, OUT):
        option.add(parser)
    options = parser.parse_args()
    changed = [*options.set, *["rounds=20"] * options.quick]
    try:
        study = load(options.name, changed, options.algorithms)
    except ValueError as error:
        parser.error(str(error))
    runs, best = list(run(study)), list(tuned(study))
    shown = [one for one in runs if one.row["participation"] in FIGURE]
    matrices = matrix(runs), matrix(best)
    found = {"runs": [one.row for one in runs], "tuned": [one.row for one in best]}
    about = {"study": study.source, **found, "environment": environment()}
    folder = options.out or Path("runs") / f"reproduce-{options.name}"
    text = "\n".join(table.markdown(*cells) for cells in matrices)
    write(folder / "results.json", json.dumps(about, indent=1))
    write(folder / "table.md", text)
    figures = {
        "figure": lambda: convergence(shown),
        "tuned": lambda: convergence(best, ("rounds", "vectors sent")),
    }
    figure.saved(folder, figures)
    for title, cells in zip(("the study", "each at its own best step"), matrices, strict=True):
        terminal.print_table(title, *cells)
    print(f"{KEY}\nwritten: {folder}")


if __name__ == "__main__":
    main()

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

import numpy as np

import focusfl as ff
from focusfl.cli.options import changes, results
from focusfl.core.files import write
from focusfl.studies import config
from focusfl.studies.environment import environment
from focusfl.studies.report import figure, table, terminal
from focusfl.studies.study import RunName, expected, make_run, run
from focusfl.studies.summary import summarise
from focusfl.theory.prediction import predict

HERE = Path(__file__).parent
NAMES = ("ridge", "ridge-public-code", "quadratics")
FIGURE = ("full", "uniform", "weighted")  # the scenarios of the paper's figure
GRID = 2.0 ** np.arange(-4, 4.5, 0.5)  # steps that are tried, times that of the study
PUBLISHED = {"fedau": "FedAU", "scaffold": "Scaffold", "mifa": "MIFA", "scaffnew": "Scaffnew"}


def load(name: str, changed: Sequence[str] = (), only: Sequence[str] = ()) -> config.Study:
    """Read a shipped study and add the algorithms as published."""
    source = config.read(config.STUDIES / f"{name}.toml")
    source = source._replace(where=str(HERE / f"{name}.toml"))  # as_published.py lies here
    for algorithm, published in PUBLISHED.items():
        kind = {"kind": f"as_published:Published{published}"}
        source.table["algorithms"][f"{algorithm}_as_published"] = kind
    return config.made(config.changed(source, changed, only), name, simulated=True)


def tuned(study: config.Study) -> Iterator:
    """Run every algorithm but those as published at the best step of the grid."""
    for scenario in filter(FIGURE.__contains__, study.participation):
        for name, spec in study.algorithms.items():
            if name.endswith("_as_published") or spec.noise:
                continue
            lr, local_steps, seed = study.one(scenario, name)
            law = study.participation[scenario].participation
            tried = ff.sweep(
                spec.algorithm, study.problem, law, lrs=(lr * GRID).tolist(), seed=seed,
                rounds=study.rounds, local_steps=local_steps,
                options=ff.Options(on_divergence="ignore"),
            )  # fmt: skip
            best = min(tried, key=lambda result: summarise(result).merit(study.rounds))
            theory = predict(spec.algorithm, study.problem, law, lr=best.lr,
                             local_steps=local_steps)  # fmt: skip
            weight = study.problem.total_weight
            summary = summarise(best, expected(theory, study.problem), total_weight=weight)
            where = RunName(scenario, name, local_steps, seed)
            yield make_run(where, best, summary, theory, weight)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=NAMES, nargs="?", default="quadratics")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run?")
    changes(parser)
    results(parser)
    options = parser.parse_args()
    changed = [*options.set, *["rounds=20"] * options.quick]
    try:
        study = load(options.name, changed, options.algorithms)
    except ValueError as error:
        parser.error(str(error))
    runs, best = list(run(study)), list(tuned(study))
    shown = [one for one in runs if one.row["participation"] in FIGURE]
    matrices = table.matrix(runs), table.matrix(best)
    found = {"runs": [one.row for one in runs], "tuned": [one.row for one in best]}
    about = {"study": study.source, **found, "environment": environment()}
    folder = options.out or Path("runs") / f"reproduce-{options.name}"
    text = "\n".join(table.markdown(*matrix) for matrix in matrices)
    write(folder / "results.json", json.dumps(about, indent=1))
    write(folder / "table.md", text)
    figures = {
        "figure": lambda: figure.convergence(shown),
        "tuned": lambda: figure.convergence(best, ("rounds", "vectors sent")),
    }
    figure.saved(folder, figures)
    for title, matrix in zip(("the study", "each at its own best step"), matrices, strict=True):
        terminal.print_table(title, *matrix)
    print(f"{table.KEY}\nwritten: {folder}")


if __name__ == "__main__":
    main()

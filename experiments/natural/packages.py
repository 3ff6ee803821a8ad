"""Four algorithms on the eight natural federations that pip packages hold.

    python experiments/natural/packages.py [--only star]
    python experiments/natural/packages.py --table      # of packages.json alone

Equal budgets: every algorithm has nine settings, each tried with seed 0 for all rounds
of the study. FOCUS, SCAFFOLD and FedAvg have nine steps, each a quarter of the one
before: FOCUS moves by the sum over N clients, so its steps are about N times smaller.
FedAdam has three of the steps, with three server steps each. The setting with the best
mean over all tests at the end (dialysis: the best likelihood of patients for tests) is
run with the seeds of the study, which are others.
packages.json keeps what came out, packages.md is its table.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from hospitals.serve import concordance

import focusfl as ff
from focusfl.core.files import write
from focusfl.core.metrics import rises
from focusfl.studies import spec
from focusfl.studies.report.names import label
from focusfl.studies.report.table import markdown

HERE = Path(__file__).parent
SETS = "dialysis movielens insteval chem97 star tv16 flights watch".split()
ALGORITHMS = "focus scaffold fedavg fedadam".split()
METRICS = {"dialysis": "concordance", "tv16": "accuracy", "watch": "accuracy"}
STEPS = [0.4 / 4**k for k in range(9)]
ADAM_STEPS, SERVER_STEPS = STEPS[1:4], (0.1, 0.03, 0.01)
PAIRS = 100  # a centre with fewer pairs to compare is in the mean alone

# The mean over all tests, the mean of the worst tenth of clients, the worst client's.
Scores = tuple[float, float, float]


def metric(name: str) -> str:
    """What a federation is judged by."""
    return METRICS.get(name, "loss")


def settings(algorithm: Any) -> list[tuple[Any, list[float]]]:
    """Nine settings of an algorithm: variants of it, and the steps of each."""
    if isinstance(algorithm, ff.FedAdam):
        return [(replace(algorithm, server_lr=s), ADAM_STEPS) for s in SERVER_STEPS]
    return [(algorithm, STEPS)]


def scored(name: str, run: ff.Result, test: Any) -> Scores:
    """What a run's last model is worth; NaN where the run diverged."""
    if run.diverged_at is not None:
        return (float("nan"),) * 3
    if name == "dialysis":
        return survival(np.asarray(run.x), test)
    own = metric(name)
    mean, tenth, worst = (
        float(run.metrics[own + what][-1]) for what in ("", "/worst_tenth", "/worst")
    )
    return mean, tenth, worst


def merit(name: str, run: ff.Result, test: Any) -> float:
    """What a setting is chosen by: all tests; more is better, -inf where it diverged.

    Concordance does not change with the length of x: survival is chosen by likelihood.
    """
    if run.diverged_at is not None:
        return -np.inf
    mean = float(run.metrics[metric(name)][-1]) if test is None else 0.0
    if name == "dialysis":
        mean = test.objective.loss(np.asarray(run.x), test.data).mean()
    if not np.isfinite(mean):
        return -np.inf
    return float(mean if test is None and rises(metric(name)) else -mean)


def survival(x: np.ndarray, test: ff.problems.Cox) -> Scores:
    """Harrell's C on patients for tests: of all pairs in a centre, and of the worst."""
    found, counts = [], []
    for A, time, event in zip(test.A, test.time, test.event, strict=True):
        worse = event[:, None] & (time[:, None] < time)
        counts.append(int(worse.sum()))
        found.append(concordance(A @ x, worse) if counts[-1] else 0.0)
    own = sorted(c for c, many in zip(found, counts, strict=True) if many >= PAIRS)
    tenth = float(np.mean(own[: -(-len(own) // 10)]))
    return float(np.average(found, weights=counts)), tenth, own[0]


def measured(name: str, rounds: int | None = None) -> dict[str, Any]:
    """Tune and run all algorithms on one federation."""
    study = spec.load(HERE / f"{name}.toml")
    test = ff.problems.dialysis(part="test") if name == "dialysis" else None
    common = {
        "problem": study.problem,
        "participation": study.participation["coins"].participation,
        "rounds": rounds or study.rounds,
        "local_steps": study.local_steps[0],
        "eval_every": rounds or study.rounds,
        "per_client": name != "dialysis",
        "options": ff.Options(on_divergence="ignore"),
    }
    found: dict[str, Any] = {}
    for called in ALGORITHMS:
        tried = []
        for variant, steps in settings(study.algorithms[called].algorithm):
            for run in ff.sweep(variant, lrs=steps, seed=0, **common):
                tried.append((merit(name, run, test), run.lr, variant))
        _, lr, best = max(tried, key=lambda one: one[0])
        runs = ff.sweep(best, lrs=[lr], seed=study.seeds, **common)
        found[called] = {
            "lr": lr,
            "server_lr": getattr(best, "server_lr", None) if called == "fedadam" else None,
            "diverged": sum(value == -np.inf for value, *_ in tried),
            "seeds": [scored(name, run, test) for run in runs],
        }
        print(name, called, found[called], flush=True)
    return {"rounds": common["rounds"], "clients": study.problem.num_clients} | found


def ends(own: dict[str, Any]) -> str:
    """Means over seeds: of all tests, of the worst tenth, of the worst client."""
    return " / ".join(f"{value:.3f}" for value in np.mean(own["seeds"], 0))


def table(kept: dict[str, Any]) -> str:
    """All tests / the worst tenth of clients / the worst client; then the steps."""
    heads = ("federation", "clients", "metric", *map(label, ALGORITHMS))
    rows = [
        (name, f"{own['clients']:,}", metric(name), *(ends(own[a]) for a in ALGORITHMS))
        for name, own in kept.items()
    ]
    steps = [
        (name, *(f"{own[a]['lr']:g}" for a in ALGORITHMS[:3]),
         "{lr:g}, server {server_lr:g}".format(**own["fedadam"]),
         ", ".join(str(own[a]["diverged"]) for a in ALGORITHMS))
        for name, own in kept.items()
    ]  # fmt: skip
    heads_of_steps = ("federation", *map(label, ALGORITHMS), "settings that diverged")
    return markdown(heads, rows) + "\n" + markdown(heads_of_steps, steps)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SETS)
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--rounds", type=int, help="fewer, for a trial")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the results")
    options = parser.parse_args()
    file = options.out / "packages.json"
    kept = json.loads(file.read_text()) if file.is_file() else {}
    for name in [] if options.table else [options.only] if options.only else SETS:
        kept[name] = measured(name, options.rounds)
        kept = {name: kept[name] for name in SETS if name in kept}
        write(file, json.dumps(kept, indent=1))
    write(options.out / "packages.md", table(kept))


if __name__ == "__main__":
    main()

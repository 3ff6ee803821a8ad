"""Tune and run the studies of this folder, and draw what comes out.

python experiments/natural/measure.py [--out runs/natural] [--only spoken-digits]

Steps are those of `focusfl tune`, for one seed and half the rounds: doubled or halved
as long as the accuracy gains by it. FedAdam has FedAvg's step, and a server step that
is found likewise, by factors of three. What is finished is not run again.
"""

import argparse
import tempfile
from pathlib import Path

from draw import draw

from focusfl.studies import spec
from focusfl.studies.report import terminal
from focusfl.studies.runner import run_in_folder
from focusfl.studies.tuning import merit, tune

HERE = Path(__file__).parent
STUDIES = ("spoken-digits", "omniglot", "shakespeare")
ADAM = "fedadam"
SERVER = f"algorithms.{ADAM}.server_lr"
SERVER_STEPS, FACTOR = (0.01, 0.03, 0.1), 3  # tried first; from one to the next


def tuned(file: Path, folder: Path) -> dict[str, float]:
    """Changes of a study: the best steps of all algorithms."""
    short = [f"rounds={spec.load(file).rounds // 2}", "seeds=[0]"]
    plan = spec.load(file, short)
    others = [name for name in plan.algorithms if name != ADAM]
    plan = spec.load(file, short, others)
    with terminal.study_progress(plan, []) as (watch, _):
        found = {one.algorithm: one.lr for one in tune(plan, folder, watch)}
    best = {f"algorithms.{name}.lr": lr for name, lr in found.items()}
    best[f"algorithms.{ADAM}.lr"] = found["fedavg"]

    def judged(server_lr: float) -> float:
        own = {**best, SERVER: server_lr}
        plan = spec.load(file, [*short, *said(own)], [ADAM])
        return merit(run_in_folder(plan, folder / f"server-{server_lr:g}").runs[0])

    tried = {lr: judged(lr) for lr in SERVER_STEPS}
    while (top := min(tried, key=tried.__getitem__)) in (min(tried), max(tried)):
        lr = round(top / FACTOR if top == min(tried) else top * FACTOR, 6)
        tried[lr] = judged(lr)
    return {**best, SERVER: top}


def said(changes: dict[str, float]) -> list[str]:
    return [f"{key}={value}" for key, value in changes.items()]


def measure(name: str, out: Path) -> None:
    """Everything of one federation."""
    file, folder = HERE / f"{name}.toml", out / name
    plan = spec.load(file, said(tuned(file, folder / "tuning")))
    with terminal.study_progress(plan, []) as (watch, _):
        run_in_folder(plan, folder, watch)


def quick(name: str) -> None:
    """Run a few rounds of a study in a folder that is not kept."""
    changes = ["rounds=4", "eval_every=2", "seeds=[0]"]
    plan = spec.load(HERE / f"{name}.toml", changes, ["fedavg"])
    with tempfile.TemporaryDirectory() as folder:
        for run in run_in_folder(plan, Path(folder)).runs:
            print(f"{name}: accuracy {run.curves['accuracy'].tolist()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/natural"))
    parser.add_argument("--only", choices=STUDIES)
    parser.add_argument("--quick", action="store_true", help="a few rounds; keeps nothing")
    options = parser.parse_args()
    if options.quick:
        try:
            return quick(options.only or STUDIES[0])
        except ValueError as error:  # no data
            parser.exit(2, f"{error}\n")
    for name in [options.only] if options.only else STUDIES:
        measure(name, options.out)
        draw([options.out / name])


if __name__ == "__main__":
    main()

"""Draw error against simulated minutes: a server that waits, one that asks more than it
takes, and an asynchronous one. Every run at the best of a grid of steps."""

import argparse
from pathlib import Path

import numpy as np

import focusfl as ff
from focusfl.participation import Async, LatencyModel, Sync
from focusfl.studies.report.figure import blank, render

MINUTES, STEPS, TAU = 30.0, 2.0 ** -np.arange(0, 11), 5
CLOCK = LatencyModel(
    compute={"median": 0.5, "sigma": 1.0}, up=5.0, down=20.0, latency=0.1, jitter=0.3
)
SERVERS = {
    "waits for 10": Sync(CLOCK, select=10),
    "first 10 of 13": Sync(CLOCK, select=13, take=10),
    "asynchronous": Async(CLOCK),
}
METHODS = {
    "FOCUS": ff.Focus(memory="mean"),
    "FedBuff": ff.FedBuff(),
    "FedAsync": ff.FedAsync(),
    "FedAvg": ff.FedAvg(),
}


def best(algorithm, problem, law, minutes=MINUTES):
    """Minutes and errors of the step that is nearest in the end."""
    probe = ff.simulate(
        algorithm, problem, law, rounds=300, lr=1e-9, local_steps=TAU, eval_every=300
    )
    pace = probe.metrics["seconds"].sum() / 300
    rounds = int(60 * minutes / pace)
    runs = ff.sweep(
        algorithm, problem, law, lrs=list(STEPS / problem.L), rounds=rounds,
        local_steps=TAU, eval_every=max(1, rounds // 200),
        options=ff.Options(on_divergence="ignore"),
    )  # fmt: skip
    ended = [run for run in runs if run.diverged_at is None]
    run = min(ended, key=lambda run: run.metrics["distance"][-1])
    at = run.evaluated
    return np.cumsum(run.metrics["seconds"])[at] / 60, run.metrics["distance"][at]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one method, draw nothing")
    quick = parser.parse_args().quick
    problem = ff.problems.ridge(num_clients=20, dim=10, rows=20, seed=0)
    if quick:
        minutes, errors = best(METHODS["FOCUS"], problem, SERVERS["waits for 10"], 2.0)
        return print(f"{errors[-1]:.1e} at {minutes[-1]:.0f} min")
    picture = blank(figsize=(9.5, 3.2), layout="constrained")
    panels = picture.subplots(1, len(SERVERS), sharey=True)
    for panel, (name, law) in zip(panels, SERVERS.items(), strict=True):
        for method, algorithm in METHODS.items():
            minutes, errors = best(algorithm, problem, law)
            panel.plot(minutes, np.maximum(errors, 1e-16), label=method)
            print(f"{name:15s} {method:9s} {errors[-1]:.1e} at {minutes[-1]:.0f} min")
        panel.set_yscale("log")
        panel.set(title=name, xlabel="simulated minutes", xlim=(0, MINUTES))
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("‖x − x*‖ / ‖x*‖")
    panels[0].legend(frameon=False)
    place = Path(__file__).parent.parent / "latency.png"
    place.write_bytes(render(picture, "png"))


if __name__ == "__main__":
    main()

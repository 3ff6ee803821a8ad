"""The results of a deployment: those of a study, made from the events of its job.

model.npz           the model: its leaves by their paths, a single array as x
model.safetensors   the same, for `ff.Study.load(folder).model()`, PyTorch and Flax
"""

import io
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from focusfl.algorithms import ALGORITHMS
from focusfl.core import tree
from focusfl.core.files import BLANK, write
from focusfl.core.models import save_model
from focusfl.core.result import Result, costs
from focusfl.core.tree import Tree
from focusfl.deploy import SCENARIO
from focusfl.flower import events as happened
from focusfl.flower.job import Job
from focusfl.flower.protocol.messages import paths
from focusfl.simulation.step_sizes import in_words, slows, tabled, used
from focusfl.studies import store
from focusfl.studies.runner import RunName, make_run
from focusfl.studies.summary import summarise
from focusfl.studies.verdict import Expected
from focusfl.theory.prediction import Prediction

MODEL, FOR_OTHERS = "model.npz", "model.safetensors"
Events = Sequence[Mapping[str, Any]]
Pairs = tuple[np.ndarray, np.ndarray]  # rounds and clients, an entry for each push


def keep(
    job: Job, x: Tree | None, events: Events, folder: Path | None = None, **state: Any
) -> None:
    """Write the model and the results of a study.

    Args:
        job: what was learned.
        x: the model at the end; None: a server of secure sums does not know it.
        events: of the job, the last of which is its end.
        folder: where to write; None: the job's.
        state: server, clients and weights at the end, as far as known; see `Result`.
    """
    folder, events = job.place if folder is None else folder, happened.lasting(events)
    if x is not None:
        model = archive({"x" if path == "." else path: leaf for path, leaf in paths(x)})
        write(folder / MODEL, model, sealed=True)
        save_model(folder / FOR_OTHERS, x)
    end, pairs = events[-1], participants(job, events)
    counts = np.bincount(pairs[0], minlength=end["round"])
    row, curves = _run(job, events, counts, state)
    row["model"] = None if x is None else FOR_OTHERS
    shares = _shares(pairs, counts, len(job.sites))
    manifest = _manifest(job, events, {SCENARIO: shares})
    store.save(folder, manifest, [store.Run(row, curves)], {SCENARIO: pairs})


def points(events: Events) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Make the curves: numbers of rounds done, and by name the metrics at each of them.

    Metrics of the server have a point for every round; those of the sites have fewer.
    """
    metrics_by_round: dict[int, dict[str, float]] = {}
    for event in events:
        if (done := happened.rounds_done(event)) is None:
            continue
        point = metrics_by_round.setdefault(done, {})
        # The server's own evaluation counts first: it is of everybody.
        for name, value in happened.metrics(event).items():
            if not name.startswith("|"):
                point.setdefault(name, value)
    always = set.intersection(*(set(point) for point in metrics_by_round.values()))
    last = metrics_by_round[max(metrics_by_round)]
    complete = last if always <= {"tracker_norm"} else always
    rounds = [n for n, point in sorted(metrics_by_round.items()) if set(complete) <= set(point)]
    names = [name for name in happened.metrics({"metrics": last}) if name in complete]
    curves = {name: np.array([metrics_by_round[n][name] for n in rounds]) for name in names}
    return np.array(rounds), curves


def participants(job: Job, events: Events) -> Pairs:
    """List who was counted in each round, by their places among the sites."""
    place = {site: number for number, site in enumerate(job.sites)}
    pairs = [
        (event["round"], place[site])
        for event in events
        if event["event"] == "round"
        for site in event["counted"]
    ]
    rounds, clients = np.array(pairs, int).reshape(-1, 2).T
    return rounds, clients


def archive(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Write an .npz file; np.savez cannot hold arrays that are called as its arguments."""
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        archive.comment = BLANK.encode()  # for a writer that seals it
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _run(
    job: Job, events: Events, counts: np.ndarray, state: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Make the row and the curves that a study has of a run.

    Args:
        job: what was learned.
        events: of the job.
        counts: how many sites were counted in each round, (rounds,).
        state: see `keep`.
    """
    end, about = events[-1], job.about
    rounds, metrics = points(events)
    spent, seconds = _spent(job, events, counts)
    known = bool({"distance", "grad_norm"} & set(metrics))
    metrics |= _epsilon(events, rounds)
    if not known:  # what a verdict is about must be there: it is replaced below
        metrics["grad_norm"] = np.ones(len(rounds))
    for metric, values in metrics.items():
        spent[metric] = np.full(end["round"] + 1, np.nan)
        spent[metric][rounds] = values
    result = Result(
        x=None, metrics=spent, trajectory=None,
        diverged_at=end["round"] if end["diverged"] else None, lr=_lr(job, end),
        why_lr=about.get("why_lr"), server=state.get("server"), clients=state.get("clients"),
        weights=state.get("weights"), schedule=in_words(job.lr),
    )  # fmt: skip
    expected = Expected(noisy=bool(about.get("noisy")), slowed=slows(job.lr, end["round"]))
    name = about.get("algorithm", _name(job))
    run = make_run(
        RunName(SCENARIO, name, job.local_steps, about.get("seed", 0)), result,
        summarise(result, expected), Prediction(), job.total_weight, float(seconds.sum()),
    )  # fmt: skip
    curves = {**run.curves, "seconds": np.cumsum(seconds)[rounds]}
    row = {
        **run.row, "rounds": end["round"],
        "grad_norm_of": end.get("of", "nobody"), "counted": end["counted"],
    }  # fmt: skip
    if not known:
        del curves["grad_norm"]
        why = "neither the server nor the sites have found a distance or a gradient"
        row |= {"error": np.nan, "verdict": "unclear", "reason": why, "grad_norm": None}
    norms = happened.metrics(end)
    return row | {k: norms[k] for k in ("grad_norm", "tracker_norm") if k in norms}, curves


def _spent(
    job: Job, events: Events, counts: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Compute what each round has cost, the warm start first, and how many seconds it took."""
    clients = len(job.sites)
    spent = costs(job.algorithm, clients, counts, job.local_steps, job.params)
    if job.secure:  # masked numbers take 64 bits each; the sealed states are not counted
        plain = costs(job.algorithm, clients, counts, job.local_steps)
        spent["bytes_up"] = 8.0 * tree.size(job.params) * plain["up"]
        spent["up"] = spent["bytes_up"] / tree.nbytes(job.params)
    warm = {name: each[0] / clients for name, each in spent.items()}
    seconds = np.zeros(len(counts) + 1)
    for event in events:
        if event["event"] == "round":
            seconds[event["round"] + 1] += event["seconds"]
        elif event["event"] == "warm":
            seconds[event["round"]] += event["seconds"]
            if event["round"]:  # of a later generation
                for name, each in warm.items():
                    spent[name][event["round"]] += each * len(event["counted"])
    return spent, seconds


def _epsilon(events: Events, rounds: np.ndarray) -> dict[str, np.ndarray]:
    """Give the largest epsilon that a site had reported by each of these rounds, if any."""
    largest = np.zeros(events[-1]["round"] + 1)
    for event in events:
        if reported := event.get("epsilon"):
            done = event["round"] + (event["event"] == "round")
            largest[done] = max(largest[done], *reported.values())
    return {"epsilon": np.maximum.accumulate(largest)[rounds]} if largest.any() else {}


def _lr(job: Job, end: Mapping[str, Any]) -> float:
    """Give the step size as a study names it; of a schedule, else the largest in use."""
    if not callable(job.lr):
        return job.lr
    steps = tabled(job.lr, job.rounds)
    return float(job.about.get("lr", used(steps, end["round"], None)))


def _manifest(
    job: Job, events: Events, scenarios: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    began = next(event["time"] for event in events if event["event"] == "begin")
    now = datetime.now(UTC)
    return {
        "name": job.job,
        "study": job.about.get("study", _settings(job)),
        "environment": store.environment(),
        "started": datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
        "finished": now.isoformat(timespec="seconds"),
        "seconds": round(now.timestamp() - began, 3),
        "compile_seconds": 0.0,
        "problem": {
            "kind": job.about.get("problem", "deployment"),
            "num_clients": len(job.sites),
            "size": sum(np.size(leaf) for _, leaf in paths(job.params)),
        },
        "scenarios": scenarios,
        "warnings": events[-1]["warnings"],
    }


def _shares(pairs: Pairs, counts: np.ndarray, clients: int) -> dict[str, Any]:
    """Compute how often each site took part, and its mean share of a round."""
    rounds, who = pairs
    p = np.bincount(who, minlength=clients) / len(counts)
    q = np.bincount(who, 1 / counts[rounds], minlength=clients) / len(counts)
    return {"kind": SCENARIO, "p": p.tolist(), "q": q.tolist()}


def _name(job: Job) -> str:
    kind = type(job.algorithm)
    return next((n for n, k in ALGORITHMS.items() if k is kind), kind.__name__)


def _settings(job: Job) -> dict[str, Any]:
    """Collect the settings of a job as JSON values."""
    names = (
        "rounds", "lr", "local_steps", "on_empty", "max_norm", "max_memory", "deadline",
        "minimum", "target", "patience", "eval_every",
    )  # fmt: skip
    settings = {name: getattr(job, name) for name in names}
    settings["lr"] = in_words(job.lr) or job.lr
    if job.max_norm == math.inf:
        settings["max_norm"] = "inf"  # JSON has no such number
    if job.weights is not None:
        settings["weights"] = dict(job.weights)
    return {**settings, "sites": list(job.sites), "algorithm": repr(job.algorithm)}

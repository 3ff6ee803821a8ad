"""What a deployment leaves behind: what a study does, made of the events of its job.

model.npz     the model: its leaves by their paths, a single array as x
curves.npz    where pandas, pyarrow or jax is missing, instead of a study's files:
              the same curves, and who was counted in each round
"""

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.algorithms import ALGORITHMS
from focusfl.deploy import SCENE
from focusfl.engines.flower import events as happened
from focusfl.engines.flower.job import Job
from focusfl.engines.wire.format import paths
from focusfl.experiment.files import write
from focusfl.tree import Tree

if TYPE_CHECKING:
    from focusfl.engines.run import Result
    from focusfl.experiment.summary import Summary

MODEL, CURVES = "model.npz", "curves.npz"
Events = Sequence[Mapping[str, Any]]
Pairs = tuple[np.ndarray, np.ndarray]  # rounds and clients, an entry for each push


def keep(
    job: Job, x: Tree, events: Events, folder: Path | None = None, **state: Any
) -> list[str]:
    """Write the model and what a study leaves behind; say what could not be.

    `state` is what is known of server and clients at the end: see `Result`.
    """
    folder = job.place if folder is None else folder
    write(folder / MODEL, archive({path or "x": leaf for path, leaf in paths(x)}))
    rounds, metrics = points(events)
    pairs = participants(job, events)
    try:
        _save(job, folder, events, rounds, metrics, pairs, state)
    except ImportError as error:
        who = {"participation_round": pairs[0], "participation_client": pairs[1]}
        write(folder / CURVES, archive({"round": rounds, **metrics, **who}))
        return [
            f"note: {error.name} is missing, so there is {CURVES} instead of what "
            "`focusfl report` reads."
        ]
    return []


def points(events: Events) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The curves: rounds done, and the metrics of the models that all were found of.

    What the server finds after every round has a point for every round; what sites
    find now and then has fewer.
    """
    found: dict[int, dict[str, float]] = {}
    places = {"begin": ("round", 0), "round": ("round", 1), "end": ("round", 0)}
    places["evaluation"] = ("after", 0)
    for event in events:
        if event["event"] in places:
            name, more = places[event["event"]]
            point = found.setdefault(event[name] + more, {})
            # The server's own word counts: it is of everybody.
            for metric, value in happened.metrics(event).items():
                if not metric.startswith("|"):
                    point.setdefault(metric, value)
    always = set.intersection(*(set(point) for point in found.values()))
    last = found[max(found)]
    wanted = last if always <= {"tracker_norm"} else always
    whole = [n for n in sorted(found) if set(wanted) <= set(found[n])]
    names = [name for name in happened.metrics(last) if name in wanted]
    return np.array(whole), {
        name: np.array([found[n][name] for n in whole]) for name in names
    }


def participants(job: Job, events: Events) -> Pairs:
    """Who was counted in each round, by their places among the sites."""
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
    """An .npz file. Not by np.savez, which has names of its own among the arrays'."""
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as whole:
        for name, array in arrays.items():
            with whole.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _save(
    job: Job, folder: Path, events: Events, rounds: np.ndarray,
    metrics: Mapping[str, np.ndarray], pairs: Pairs, state: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write what a study writes."""
    from focusfl.engines.run import Result, costs
    from focusfl.experiment import results
    from focusfl.experiment.files import environment
    from focusfl.experiment.study import Cell
    from focusfl.theory.prediction import Prediction

    end, clients, about = events[-1], len(job.sites), dict(job.about)
    done = end["round"]
    counts = np.bincount(pairs[0], minlength=done)
    spent = costs(job.algorithm, clients, counts, job.local_steps)
    if not {"distance", "grad_norm"} & set(metrics):
        metrics = {**metrics, "grad_norm": np.full(len(rounds), np.nan)}
    result = Result(
        x=None, metrics={**_at(rounds, spent), **metrics}, trajectory=None,
        diverged_at=done if end["diverged"] else None, lr=job.lr,
        why_lr=about.pop("why_lr", None), server=state.get("server"),
        clients=state.get("clients"),
    )  # fmt: skip
    seconds = np.zeros(done + 1)
    for event in events:
        if event["event"] == "round":
            seconds[event["round"] + 1] = event["seconds"]
    cell = Cell(
        SCENE, about.pop("algorithm", _name(job)), job.local_steps,
        about.pop("seed", 0), result, _summary(result), float(seconds.sum()), 0.0,
        Prediction(), clients,
    )  # fmt: skip
    run = cell.run()
    told = {k: end[k] for k in ("grad_norm", "tracker_norm") if k in end}
    of = end.get("of", "nobody")
    run.row.update(told, grad_norm_of=of, rounds=done, counted=end["counted"])
    curves = {**run.curves, "round": rounds, "seconds": np.cumsum(seconds)[rounds]}
    began = next(event["time"] for event in events if event["event"] == "begin")
    now = datetime.now(UTC)
    manifest = {
        "name": job.job,
        "study": _settings(job),
        "environment": environment(),
        "started": datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
        "finished": now.isoformat(timespec="seconds"),
        "seconds": round(now.timestamp() - began, 3),
        "compile_seconds": 0.0,
        "problem": {
            "kind": about.pop("problem", "deployment"),
            "num_clients": clients,
            "size": sum(np.size(leaf) for _, leaf in paths(job.params)),
        },
        "scenes": {SCENE: _shares(pairs, counts, clients)},
        "warnings": end["warnings"],
        **about,
    }
    results.save(folder, manifest, [results.Run(run.row, curves)], {SCENE: pairs})


def _summary(result: "Result") -> "Summary":
    """What the curve says; where nobody has measured anything, that."""
    from focusfl.experiment.summary import Summary, errors, summarise

    if np.isfinite(errors(result)[1]).all():
        return summarise(result)
    reason = "neither server nor sites have found a gradient"
    said: dict[str, Any] = {"error": np.nan, "verdict": "unclear", "reason": reason}
    return Summary._make(said.get(name) for name in Summary._fields)


def _at(rounds: np.ndarray, spent: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What was spent between the points of a curve."""
    found = {}
    for name, per_round in spent.items():
        found[name] = np.diff(np.cumsum(per_round)[rounds], prepend=0)
    return found


def _shares(pairs: Pairs, counts: np.ndarray, clients: int) -> dict[str, Any]:
    """How often each took part, and its mean share of a round."""
    rounds, who = pairs
    p = np.bincount(who, minlength=clients) / len(counts)
    q = np.bincount(who, 1 / counts[rounds], minlength=clients) / len(counts)
    return {"kind": SCENE, "p": p.tolist(), "q": q.tolist()}


def _name(job: Job) -> str:
    kind = type(job.algorithm)
    return next((n for n, k in ALGORITHMS.items() if k is kind), kind.__name__)


def _settings(job: Job) -> dict[str, Any]:
    """What a job was, in words that can be written down."""
    names = (
        "rounds", "lr", "local_steps", "on_empty", "copies", "max_norm", "deadline",
        "minimum", "target", "patience", "evaluate_every",
    )  # fmt: skip
    own = {name: getattr(job, name) for name in names}
    return {**own, "sites": list(job.sites), "algorithm": repr(job.algorithm)}

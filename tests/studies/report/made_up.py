"""Study as a study leaves them, made up: the report must not care who ran them."""

from pathlib import Path

import numpy as np

from focusfl.studies import store


def make_run(scenario, name, seed, *, rounds=60, lr=0.1, steps=5, rate=0.6, bias=0.0,
             diverged_at=None, why_lr=None, accuracy=False, distance=True, every=1,
             width=10, **told):  # fmt: skip
    """A run that falls at a rate and settles, a little different for every seed.

    Evaluated every so many rounds; what else is `told` stands in its row.
    """
    n = rounds + 1 if diverged_at is None else diverged_at + 1
    r = np.arange(n)
    vectors = np.cumsum(r % 7)  # now many take part, now few
    noise = 1 + 0.1 * np.random.default_rng(seed).random(n)
    error = np.maximum(rate**r, bias or 1e-15) * noise
    if diverged_at is not None:
        error = 3.0**r
    reached = np.flatnonzero(error <= 1e-8)
    last = float(np.median(error[-max(1, n // 10) :]))
    words = "diverged" if diverged_at is not None else "biased" if bias else "exact"
    row = {
        "key": f"{scenario}{name}{lr}{steps}{seed}",
        "participation": scenario, "algorithm": name, "lr": lr, "why_lr": why_lr,
        "local_steps": steps, "seed": seed, "rounds": n - 1,
        "measure": "relative error" if distance else "relative gradient",
        "error": last, "rounds_to_target": int(reached[0]) if len(reached) else None,
        "rate": rate, "verdict": words, "diverged_at": diverged_at,
        "vectors_sent": float(vectors[-1]), "gradients": float(steps * vectors[-1]),
        "tracking_gap": 1e-15 if name == "focus" else None, "grad_norm": 5 * last,
        "tracker_norm": 4.9 * last if name == "focus" else None,
        "seconds": 2.0 + seed, "compile_seconds": 1.0,
        "theory": {"rate": rate if not bias else None, "bias": bias, "floor": None},
    }  # fmt: skip
    curves = {
        "round": r, "vectors_sent": vectors, "gradients": steps * vectors,
        "seconds": (1.0 + seed) * (r / n) ** 2, "bytes_up": 4.0 * width * r,
        **({"distance": error} if distance else {}),
        "grad_norm": 5 * error, "loss": 100 + error**2,
        **({"accuracy": 1 - 0.9 / (1 + r)} if accuracy else {}),
    }  # fmt: skip
    kept = (r % every == 0) | (r == n - 1)
    return store.Run(row | told, {name: v[kept] for name, v in curves.items()})


def save(folder: Path, runs, *, name="made", num_clients=6, rounds=60, study=None,
         **problem):  # fmt: skip
    """Write runs as a study's folder and read it back."""
    rng = np.random.default_rng(0)
    p = np.linspace(0.2, 0.9, num_clients)
    scenarios = list(dict.fromkeys(run.row["participation"] for run in runs))
    drawn = {scenario: np.nonzero(rng.random((rounds, num_clients)) < p) for scenario in scenarios}
    about = {
        "name": name, "study": study or {"rounds": rounds, "problem": {"kind": "made"}},
        "environment": {"focusfl": "0", "python": "3"}, "git": None,
        "started": "2026-01-01T00:00:00+00:00", "finished": "2026-01-01T00:01:00+00:00",
        "seconds": 60.0, "compile_seconds": 10.0,
        "problem": {"kind": "made", "num_clients": num_clients, "size": 10, **problem},
        "scenarios": {
            s: {"kind": s, "p": p.tolist(), "q": p.tolist()} for s in scenarios
        },
    }  # fmt: skip
    store.save(folder, about, runs, drawn)
    return store.Study.load(folder)


def make_study(folder: Path, seeds=3, **options):
    """Two scenarios, three algorithms: exact, biased, and diverging in one of them."""
    runs = [
        run
        for scenario, slow in (("full", 0.55), ("rare", 0.6))
        for name, how in (
            ("focus", {"rate": slow}),
            ("fedavg", {"bias": 0.02}),
            ("scaffold", {"diverged_at": 12} if scenario == "rare" else {"rate": 0.65}),
        )
        for run in [make_run(scenario, name, seed, **how) for seed in range(seeds)]
    ]
    return save(folder, runs, **options)

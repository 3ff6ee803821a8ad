"""A real fleet of four sites with TLS through kills, wiped sites and restored backups.

    python tests/deploy/endurance.py --rounds 260 --every 12     # half an hour on two cores

Every so many rounds one process is killed by -9 and started again, a site loses its disk, or
the server gets back a copy of its database. Nothing is broken in the last tenth of the rounds,
so that the model can converge. Ends with code 1 unless it is at the optimum to 1e-8 and the
server's sums are those of the sites' states.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos import chaotic

from focusfl.deploy import study
from focusfl.deploy.local import local_study

SITES = 4
STUDY = """
lr = 0.05
local_steps = 2
[problem]
kind = "random_quadratic"
dim = 6
L = 1.5
[participation.full]
[algorithms.focus]
"""
FAULTS = (
    *(f"{what}:{site}" for what in ("node", "disk") for site in range(SITES)),
    "superlink", "server", "restore",
)  # fmt: skip


def plan(rounds: int, every: int, seed: int) -> dict[int, str]:
    """Draw which fault comes in which round; every fourth one is a backup."""
    rng = np.random.default_rng(seed)
    places = range(every, rounds * 9 // 10, every)
    return {
        place: "backup" if turn % 4 == 0 else str(rng.choice(FAULTS))
        for turn, place in enumerate(places)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--every", type=int, default=20, help="rounds from one fault to the next")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    options = parser.parse_args()
    faults = plan(options.rounds, options.every, options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.monotonic()
        (folder / "study.toml").write_text(f"rounds = {options.rounds}\n{STUDY}")
        deployed = study.load(folder / "study.toml", (), None, SITES)
        outcome = local_study(
            deployed, folder / "run", lambda event: None, tls=True, driver=chaotic(faults),
            settings={"deadline": 15.0, "patience": 300.0},
        )  # fmt: skip
    error, gap = float(outcome.metrics["distance"]), float(outcome.gap)
    counts = Counter(fault.split(":")[0] for fault in faults.values())
    print(
        f"{options.rounds} rounds in {(time.monotonic() - start) / 60:.1f} minutes; "
        + ", ".join(f"{count} {fault}" for fault, count in sorted(counts.items()))
        + f"; participation {outcome.masks.mean(0).round(2).tolist()}"
        + f"; error {error:.1e}, gap {gap:.1e}"
    )
    return int(not (error <= 1e-8 and gap <= 1e-9))


if __name__ == "__main__":
    sys.exit(main())

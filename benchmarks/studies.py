"""What a grid costs: a study with 16 step sizes against one with one.

Both in fresh processes, from the command to the written results, compilation included;
the ratio is the median over a few turns.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STUDY = """
rounds = 1500
lr = 2e-4
local_steps = 5
[problem]
kind = "ridge"
[participation.uniform]
m = 4
[algorithms.focus]
"""
RATES = [round(2e-4 * 0.8**k, 12) for k in range(16)]


def timed(folder: Path, *changes: str) -> float:
    """Seconds of one study, in a process of its own and an empty folder."""
    command = [sys.executable, "-m", "focusfl.cli", "run", "study.toml", "--quiet"]
    sets = [part for change in changes for part in ("--set", change)]
    start = time.perf_counter()
    subprocess.run([*command, "--fresh", *sets], cwd=folder, check=True)
    return time.perf_counter() - start


def measured(turns: int) -> dict[str, float]:
    """Both sides by turns."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "study.toml").write_text(STUDY)
        one, many = [], []
        for _ in range(turns):
            one.append(timed(folder))
            many.append(timed(folder, f"lr={RATES}"))
    ratio = statistics.median(b / a for a, b in zip(one, many, strict=True))
    return {"one_s": min(one), "sixteen_s": min(many), "ratio": ratio}


def show(found: dict[str, float]) -> None:
    """Print it."""
    print(
        f"a study with one step size {found['one_s']:.2f} s, with sixteen "
        f"{found['sixteen_s']:.2f} s: {found['ratio']:.2f} times"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    found = measured(1 if options.quick else options.turns)
    print(json.dumps(found, indent=2)) if options.json else show(found)


if __name__ == "__main__":
    main()

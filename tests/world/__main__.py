"""Live through many sequences: python tests/world --sequences 100000 --seed 0."""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from world.bugs import BUGS, planted
from world.sequence import Lived, drawn, live, lived, shrunk

SAID = ("steps", "operations", "crashes", "lost messages", "wiped disks", "rollbacks")
SAID += (
    "server rollbacks",
    "damaged books",
    "epochs",
    "applied",
    "late",
    "refused",
    "lost",
    "ahead",
)
SAID += ("spikes",)


def through(seeds: range, workers: int, faults: bool) -> Iterator[tuple[int, Lived]]:
    """Live through the sequences of these seeds, in so many processes."""
    job = partial(lived, server_faults=faults)
    if workers == 1:
        yield from map(job, seeds)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(job, seeds, chunksize=20)


def run(arguments: argparse.Namespace) -> int:
    """Live through them all, say what was violated, and give how often."""
    first, count = arguments.seed, arguments.sequences
    tally: Counter[str] = Counter()
    gap = error = violations = 0
    start = time.monotonic()
    faults = not arguments.without_server_faults
    seeds = range(first, first + count)
    for done, (seed, life) in enumerate(through(seeds, arguments.workers, faults), 1):
        tally.update(life.tally)
        gap, error = max(gap, life.gap), max(error, life.error)
        if life.wrong:
            violations += 1
            print(f"seed {seed}, step {life.step}: {life.wrong}")
            if violations <= arguments.shrink:
                explain(seed, faults)
        if done % 1000 == 0:
            rate = done / (time.monotonic() - start)
            print(f"{done} of {count}, {rate:.0f} a second", file=sys.stderr)
    counts = ", ".join(f"{tally[name]} {name}" for name in SAID if tally[name])
    print(
        f"{count} sequences from seed {first} in {time.monotonic() - start:.0f} s: "
        f"{violations} violations; {counts}; worst gap {gap:.1e}, worst error "
        f"{error:.1e}"
    )
    return violations


def explain(seed: int, server_faults: bool) -> None:
    """Print as little of a sequence as is still wrong."""
    logging.disable(logging.CRITICAL)
    less = shrunk(drawn(seed, server_faults))
    print(f"  {less.setting}, end {less.end}")
    for event in less.events:
        print(f"  {event}")
    print(f"  {live(less).wrong}", flush=True)


def hunt(most: int) -> int:
    """Look for the first seed that shows each planted bug; give how many have none."""
    logging.disable(logging.CRITICAL)
    missed = 0
    for bug in BUGS:
        with planted(bug):
            found = (seed for seed in range(most) if live(drawn(seed)).wrong)
            seed = next(found, None)
        missed += seed is None
        shown = f"not within {most} seeds" if seed is None else f"seed {seed}"
        print(f"{bug.name}: {shown}", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/world", description=__doc__)
    parser.add_argument("--sequences", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one's")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument(
        "--shrink", type=int, default=1, help="how many violations to make small"
    )
    parser.add_argument(
        "--without-server-faults", action="store_true",
        help="the server's disk is neither lost nor restored from a backup",
    )  # fmt: skip
    parser.add_argument(
        "--bugs", action="store_true",
        help="look for the first seed that shows each planted bug",
    )  # fmt: skip
    arguments = parser.parse_args()
    for name in ("sequences", "workers"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be positive; got {getattr(arguments, name)}.")
    wrong = hunt(arguments.sequences) if arguments.bugs else run(arguments)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

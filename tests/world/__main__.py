"""Live through many sequences: python tests/world --sequences 100000 --seed 0."""

import argparse
import sys
import time
from collections import Counter
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from world.bugs import BUGS, first_seed
from world.world import lived


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/world", description=__doc__)
    parser.add_argument("--sequences", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one's")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument(
        "--bugs", action="store_true", help="find the first seed of each planted bug"
    )
    arguments = parser.parse_args()
    first, count = arguments.seed, arguments.sequences
    if arguments.bugs:
        for bug in BUGS:
            print(f"{bug.name}: seed {first_seed(bug, range(first, first + count))}")
        return 0
    tally: Counter = Counter()
    gap = error = violations = 0
    start = time.monotonic()
    seeds = range(first, first + count)
    with ExitStack() as stack:
        lives = map(lived, seeds)
        if arguments.workers > 1:
            pool = stack.enter_context(get_context("spawn").Pool(arguments.workers))
            lives = pool.imap_unordered(lived, seeds, 20)
        for done, (seed, life) in enumerate(lives, 1):
            tally.update(life.tally)
            gap, error = max(gap, life.gap), max(error, life.error)
            if life.wrong:
                violations += 1
                print(f"seed {seed}: {life.wrong}", flush=True)
            if done % 1000 == 0:
                rate = done / (time.monotonic() - start)
                print(f"{done} of {count}, {rate:.0f} a second", file=sys.stderr)
    counts = ", ".join(f"{number} {name}" for name, number in sorted(tally.items()))
    print(
        f"{count} sequences from seed {first} in {time.monotonic() - start:.0f} s: "
        f"{violations} violations; {counts}; worst gap {gap:.1e}, worst error "
        f"{error:.1e}"
    )
    return min(violations, 1)


if __name__ == "__main__":
    sys.exit(main())

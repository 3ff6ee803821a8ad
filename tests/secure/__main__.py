"""Live through many sequences: python tests/secure --sequences 5000 --seed 0."""

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from secure.life import live


def main() -> int:
    """Say what was violated, by seed, and give how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settle", type=int, default=4, help="every so many arrive")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    tally: Counter[str] = Counter()
    gap = error = 0.0
    violations, start = 0, time.monotonic()
    for done in range(asked.sequences):
        seed = asked.seed + done
        try:
            more, worst, left = live(seed, seed % asked.settle == 0)
        except Exception as wrong:
            violations += 1
            print(f"seed {seed}: {type(wrong).__name__}: {wrong}", flush=True)
            continue
        tally.update(more)
        gap, error = max(gap, worst), max(error, left)
        if done % 500 == 499:
            print(f"{done + 1}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"{asked.sequences} sequences from seed {asked.seed}: {violations} violations")
    print(", ".join(f"{count} {what}" for what, count in sorted(tally.items())))
    print(f"worst gap {gap:.1e}, worst error {error:.1e}")
    return violations


if __name__ == "__main__":
    sys.exit(bool(main()))

"""All ratios worth guarding, in one file: what has got slower?

Ratios, never seconds: they travel from one machine to another. More is better.
`make bench` writes build/bench.json and fails where a ratio fell well below that in
ratios.json beside this file, which `python benchmarks/guard.py --store` replaces.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import engines
import studies

HERE = Path(__file__).parent
STORED = HERE / "ratios.json"
SHARE = 0.8  # of a stored ratio that is still taken for noise


def measured(quick: bool = False) -> dict[str, float]:
    """Run the benchmarks that take a minute, and print what they print."""
    found = engines.measured(quick)
    engines.show(found)
    grid = studies.measured(turns=1 if quick else 3)
    studies.show(grid)
    loop, one, many = (
        sum(row[way] for row in found["engines"]) for way in ("loop_us", "simulate_us", "sweep_us")
    )
    few, *_, lots = (row["simulate_us"] for row in found["clients"])
    return {
        "one run against loop": loop / one,
        f"{engines.RATES} runs side by side against loop": loop / many,
        "a round of 8 among 8,000 against 8 among 32,000 clients": few / lots,
        "16 step sizes one by one against a study of 16": 16 / grid["ratio"],
    }


def slower(stored: Mapping[str, float], found: Mapping[str, float]) -> list[str]:
    """What fell below its share of what is stored, or is not stored, in words."""
    lines = [f"{name}: store it with --store" for name in found if name not in stored]
    for name, before in stored.items():
        now = found.get(name, 0.0)
        if now < SHARE * before:
            lines.append(f"{name}: {now:.2f}, was {before:.2f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--store", action="store_true", help="as the new standard")
    parser.add_argument("--quick", action="store_true", help="small: nothing fails")
    options = parser.parse_args(arguments)
    ratios = measured(options.quick)
    found = {name: round(ratio, 3) for name, ratio in ratios.items()}
    text = json.dumps(found, indent=2) + "\n"
    file = STORED if options.store and not options.quick else options.out
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(f"\n{text}written: {file}")
    lines = [] if options.quick else slower(json.loads(STORED.read_text()), found)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

"""All ratios worth guarding, in one file: what has got slower?

Ratios, never seconds: they travel from one machine to another. More is better.
`make bench` writes build/bench.json; tests/test_bench.py compares it with ratios.json
beside this file, which `python benchmarks/guard.py --store` replaces.
"""

import argparse
import json
from pathlib import Path

import engines
import studies

HERE = Path(__file__).parent
STORED = HERE / "ratios.json"


def measured() -> dict[str, float]:
    """Run the benchmarks that take a minute, and print what they print."""
    found = engines.measured()
    engines.show(found)
    grid = studies.measured(turns=3)
    studies.show(grid)
    loop, one, many = (
        sum(row[way] for row in found["engines"])
        for way in ("loop_us", "simulate_us", "sweep_us")
    )
    few, *_, lots = (row["simulate_us"] for row in found["clients"])
    return {
        "one run against loop": loop / one,
        f"{engines.RATES} runs side by side against loop": loop / many,
        "a round of 8 among 8,000 against 8 among 32,000 clients": few / lots,
        "16 step sizes one by one against a study of 16": 16 / grid["ratio"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--store", action="store_true", help="as the new standard")
    options = parser.parse_args()
    text = json.dumps({k: round(v, 3) for k, v in measured().items()}, indent=2) + "\n"
    file = STORED if options.store else options.out
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(f"\n{text}written: {file}")


if __name__ == "__main__":
    main()

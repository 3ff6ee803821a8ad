"""Measure every algorithm in every scenario; write what was found into choosing.md.

    python docs/draw/choosing.py              # all of it: some minutes on 2 cores
    python docs/draw/choosing.py proxskip     # ProxSkip alone: a quarter of a minute
    python docs/draw/choosing.py FedDyn MIFA  # these rows alone

Each at its own best step of a grid, the median of three seeds.
"""

import argparse
import re
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

import focusfl as ff
from focusfl.algorithms.wrapped import Wrapped
from focusfl.core import tree
from focusfl.core.files import renamed

PAGE = Path(__file__).parent.parent / "choosing.md"
STEPS = 1e-3 * 2.0 ** -np.arange(0, 12.0)  # halves, from past the edge of stability
ROUNDS, TAU, SEEDS, EXACT, TARGET = 1500, 5, range(3), 1e-10, 1e-8
COINS = range(8)  # seeds of ProxSkip's coin
FINER = 1e-3 * 2.0 ** (-np.arange(8) / 2)  # its steps
NOISE = 10.0  # the standard deviation of every entry of every gradient


def scenarios():
    problem = ff.problems.ridge(num_clients=16, dim=100, rows=100)
    coins = ff.participation.Bernoulli(np.linspace(0.05, 0.9, 16))
    return {
        "everybody": (problem, ff.participation.Full()),
        "4 of 16": (problem, ff.participation.Uniform(4)),
        "unequal coins": (problem, coins),
        "one client 1 in 50": (problem, ff.participation.Adversarial(50)),
        "unequal coins, noise": (ff.problems.Noisy(problem, NOISE), coins),
    }


def cell(algorithm, problem, who, steps=STEPS, digits=1) -> str:
    """Rounds to 1e-8 at the best step for it, in the median of seeds; or the error."""
    runs = [
        ff.sweep(algorithm, problem, who, lrs=steps, rounds=ROUNDS, local_steps=TAU,
                 seed=seed, options=ff.Options(on_divergence="ignore"))
        for seed in SEEDS
    ]  # fmt: skip
    reached, ends = np.full((2, len(runs), len(steps)), np.inf)
    for s, results in enumerate(runs):
        for k, result in enumerate(results):
            distance = result.metrics["distance"]
            if result.diverged_at is None:
                ends[s, k] = np.median(distance[-100:])
            if ends[s, k] < EXACT:
                reached[s, k] = np.argmax(distance < TARGET)
    rounds = np.median(reached, axis=0)
    if np.isfinite(rounds).any():
        return f"**{int(rounds.min())}**"
    return f"{np.median(ends, axis=0).min():.{digits}e}".replace("e-0", "e-")


def vectors(algorithm) -> tuple[str, str]:
    """What a client keeps between rounds, and what travels down and up."""
    _, client = algorithm.init(np.zeros(100))
    kept = tree.size(client) // 100  # numbers are none
    return str(kept), "+".join(f"{part:g}" for part in algorithm.cost)


def rows() -> dict[str, ff.Algorithm]:
    found: dict[str, ff.Algorithm] = {}
    for kind in ff.ALGORITHMS.values():
        if kind is ff.ProxSkip:  # for everybody at once, and one step a round
            continue
        if issubclass(kind, Wrapped):  # of another one: see tuning.md
            continue
        found[kind.__name__] = kind()
        if kind is ff.Focus:
            found['Focus(memory="last")'] = ff.Focus(memory="last")
    return found


def row(name: str) -> str:
    algorithm = rows()[name]
    cells = [cell(algorithm, *scenario) for scenario in scenarios().values()]
    return "| " + " | ".join([f"`{name}`", *vectors(algorithm), *cells]) + " |"


def table(names: Collection[str] = ()) -> str:
    """A row for every algorithm; all are measured, or these and who has none yet."""
    found = scenarios()
    there = re.findall(r"^(\| `(.+?)` \|.*)$", PAGE.read_text(), re.M)
    known = {name: line for line, name in there} if names else {}
    lines = [
        f"| algorithm | kept | sent | {' | '.join(found)} |",
        "| --- " * (len(found) + 3) + "|",
    ]
    for name in rows():
        lines.append(known[name] if name in known and name not in names else row(name))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def proxskip() -> str:
    """What ProxSkip takes with everybody there, one local step and coins of 0.2."""
    problem = ff.problems.ridge(num_clients=16, dim=100, rows=100)
    found = []
    for seed in COINS:
        algorithm = ff.ProxSkip(p=0.2, seed=seed)
        runs = ff.sweep(
            algorithm, problem, ff.participation.Full(), lrs=FINER, rounds=ROUNDS,
            options=ff.Options(on_divergence="ignore"),
        )  # fmt: skip
        distances = [run.metrics["distance"] for run in runs]
        rounds = min(int(np.argmax(d < TARGET)) for d in distances if d[-1] < EXACT)
        heads = int(sum(algorithm.coin(index) for index in range(rounds)))
        found.append((rounds, heads))
        print(f"coin {seed}: {rounds} rounds, {heads} messages", flush=True)
    (few, least), (many, most) = np.min(found, 0), np.max(found, 0)
    middle = np.median(found, 0)[1]
    return (
        "ProxSkip is not in the table, because it needs every client and one local step "
        f"a round.\nWith a coin of 0.2 it took {few} to {many} rounds and {least} to {most} "
        f"messages per client, {middle:g} in the median\n({len(COINS)} coins, each at "
        f"its best of {len(FINER)} steps, a factor √2 apart)."
    )


def put(mark: str, measure: Callable[[], str], page: Path = PAGE) -> None:
    """Write what was measured between two marks of a page."""
    found, place = measure(), rf"(<!-- {mark} -->\n).*?(\n<!-- end -->)"
    text = re.sub(place, lambda m: m[1] + found + m[2], page.read_text(), flags=re.S)
    with renamed(page) as part:
        part.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = [*rows(), "proxskip"]
    parser.add_argument("names", nargs="*", help="measure these alone")
    parser.add_argument("--quick", action="store_true", help="print one cell, write nothing")
    options = parser.parse_args()
    names = options.names
    if unknown := set(names) - set(known):
        said = ", ".join(sorted(unknown))
        parser.error(f"names must be of {', '.join(known)}; got {said}")
    if options.quick:
        return print(cell(ff.Focus(), *scenarios()["4 of 16"]))
    if not names or "proxskip" in names:
        put("proxskip", proxskip)
    if names != ["proxskip"]:
        put("measured", lambda: table(names))


if __name__ == "__main__":
    main()

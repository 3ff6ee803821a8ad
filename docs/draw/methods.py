"""Write what every algorithm keeps, sends and claims into methods.md, from the code.

    python docs/draw/methods.py               # the claims: a second
    python docs/draw/methods.py measured      # and the rounds: some minutes on 2 cores
    python docs/draw/methods.py FedLT         # and the rounds of these alone
    python docs/draw/methods.py constants     # and of methods whose constant is given

Tests hold the page to what this writes; all of it follows from what algorithms declare.
"""

import argparse
import inspect
import math
import re
from pathlib import Path

import numpy as np
from choosing import TAU, cell, put, vectors
from choosing import rows as algorithms

import focusfl as ff
from focusfl.participation import Bernoulli, Cyclic, Full, Uniform
from focusfl.theory.prediction import rests_at_optimum

PAGE = Path(__file__).parent.parent / "methods.md"
STEPS = 4 * 2.0 ** (-np.arange(16) / 2)  # times 1 / L


def papers(kind) -> str:
    """The papers that an algorithm's file names, the file's own or its original's."""
    own = inspect.getmodule(kind).__doc__
    numbers = dict.fromkeys(re.findall(r"arxiv\.org/abs/([\d.]+\d)", own))
    links = [f"[{number}](https://arxiv.org/abs/{number})" for number in numbers]
    return ", ".join(links) or "–"


def exact(algorithm) -> str:
    """Below which step an algorithm can rest at the optimum alone."""
    if hasattr(algorithm, "inner"):
        return "as the inner one"
    one, several = (algorithm.max_exact_lr(1.0, steps) for steps in (1, TAU))
    if not one and not several:
        return "no"
    problem = ff.problems.random_quadratic(num_clients=4, dim=2)
    apart = rests_at_optimum(algorithm, problem, Cyclic(2), 1e-9, 1)
    meet = "" if apart else ", if clients meet"
    if not several:
        return f"with one local step{meet}"
    bound = "any η" if several == math.inf else f"η < {several:g}/L"
    return f"{bound}{meet}"


def claims() -> str:
    lines = ["| algorithm | paper | kept | sent | exact | invariant |", "| --- " * 6 + "|"]
    for name, kind in ff.ALGORITHMS.items():
        cells = [f"`{kind.__name__}`", papers(kind), *vectors(kind()), exact(kind())]
        cells.append(ff.ALGORITHMS.invariant(name).replace("|", "\\|"))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def scene():
    """A problem, and who takes part."""
    return ff.problems.ridge(num_clients=16, dim=20, rows=40), {
        "everybody": Full(),
        "4 of 16": Uniform(4),
        "unequal coins": Bernoulli(np.linspace(0.05, 0.9, 16)),
        "four blocks in turn": Cyclic(4),
    }


def row(name: str, algorithm) -> str:
    problem, scenarios = scene()
    steps = STEPS / problem.L
    cells = [cell(algorithm, problem, who, steps, 0) for who in scenarios.values()]
    line = "| " + " | ".join([f"`{name}`", *cells]) + " |"
    print(line, flush=True)
    return line


def heading(first: str) -> list[str]:
    _, scenarios = scene()
    return [f"| {first} | {' | '.join(scenarios)} |", "| --- " * (len(scenarios) + 1) + "|"]


def measured(names=()) -> str:
    """All algorithms, or these and who has no row yet."""
    block = PAGE.read_text().partition("<!-- measured -->")[2]
    rows = re.findall(r"^(\| `(.+?)` \|.*)$", block, re.M)
    known = {name: line for line, name in rows} if names else {}
    lines = heading("algorithm")
    for name, algorithm in algorithms().items():
        keep = name in known and name not in names
        lines.append(known[name] if keep else row(name, algorithm))
    return "\n".join(lines)


def constants() -> str:
    """FedDyn and the like, drawn to x with a strength in units of L."""
    lines = heading("constant given")
    for k in (4, 2, 1):
        number = round(scene()[0].L) // k
        lines.append(row(f"FedDyn(alpha={number})", ff.FedDyn(number)))
        lines.append(row(f"FedLT(rho=1/{number})", ff.FedLT(1 / number)))
        lines.append(row(f"FedADMM(rho={number})", ff.FedADMM(number)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="algorithms, measured or constants")
    names = parser.parse_args().names
    if unknown := set(names) - {"measured", "constants", *algorithms()}:
        parser.error(f"names must be of {', '.join(algorithms())}; got {', '.join(unknown)}")
    put("claims", claims, PAGE)
    match names:
        case []:
            pass
        case ["constants"]:
            put("constants", constants, PAGE)
        case names:
            chosen = () if names == ["measured"] else names
            put("measured", lambda: measured(chosen), PAGE)


if __name__ == "__main__":
    main()

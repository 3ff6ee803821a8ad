"""Draw who takes part under every model: a row per client, a column per round.

The bars on the right are the stated chances p_i. The trace is that of real phones,
the data set flash_availability; where it is absent its picture is left as it is.
"""

import argparse

import numpy as np
import svg

from focusfl import participation as who
from focusfl.data import DATA_SETS, places

CLIENTS, ROUNDS, SEED = 16, 96, 7
SIDE, TALL, LEFT, TOP = 6, 9, 16, 26

P = np.geomspace(0.9, 0.08, CLIENTS)
LAWS = {
    "full": who.Full(),
    "uniform": who.Uniform(4),
    "bernoulli": who.Bernoulli(P),
    "weighted": who.Weighted(4, np.arange(CLIENTS, 0.0, -1)),
    "markov": who.Markov(0.3, 0.04),
    "cyclic": who.Cyclic(4),
    "diurnal": who.Diurnal(0.35, 0.95, 32),
    "correlated": who.Correlated(0.6, 0.35, 4),
    "adversarial": who.Adversarial(24, 3),
}


def picture(name, law):
    here = who.masks(law, CLIENTS, ROUNDS, SEED).T
    p = law.marginals(CLIENTS).p
    right, bottom = LEFT + SIDE * ROUNDS, TOP + TALL * CLIENTS
    chances = [
        f'<rect x="{right + 14}" y="{TOP + TALL * i}" width="{max(80 * one, 1):.1f}" '
        f'height="{TALL * 0.86:.2f}" fill="{svg.ORANGE}"/>'
        for i, one in enumerate(p)
    ]
    parts = [
        svg.text(LEFT, 17, f"{CLIENTS} clients", 13, svg.PALE),
        svg.text(right, 17, f"{ROUNDS} rounds →", 13, svg.PALE, "end"),
        svg.text(right + 14, 17, "pᵢ", 13, svg.PALE),
        svg.text(right + 94, 17, "1", 13, svg.PALE, "end"),
        f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" '
        'fill="#f1f4f7"/>',
        svg.cells(here, LEFT, TOP, SIDE, TALL),
        *chances,
    ]
    svg.write(f"participation-{name}", type(law).__name__, right + 110, bottom + 12, parts)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    outage = who.masks(LAWS["bernoulli"], CLIENTS, ROUNDS, SEED)
    outage[32:64, 4:10] = False  # a recording in which six clients were down
    laws = LAWS | {"replay": who.Replay(outage)}
    if places.present(DATA_SETS["flash_availability"]):
        laws["trace"] = who.Trace("flash_availability", drop_absent=True)
    for name, law in laws.items():
        picture(name, law)


if __name__ == "__main__":
    main()

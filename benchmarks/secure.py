"""Seconds a round with secure sums and without, on the same fleet of Flower, by turns.

FOCUS in float64 in the plain protocol, and with sums of pushes in fixed point of which
the server sees none. Clients compute one gradient each; SuperLink and SuperNodes are
real, on loopback.

python benchmarks/secure.py [--clients 4] [--rounds 6] [--turns 2]
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from deploy import FOCUS, SIZES, focus

from focusfl.deploy.fleet import Fleet

PLAIN = {side: code.replace("np.float32", "float") for side, code in FOCUS.items()}
CODED = "Compressed(Focus(), FixedPoint(50, 44))"
SECURE = {
    side: code.replace("import Focus\n", "import Compressed, FixedPoint, Focus\n")
    .replace("\n\n\ndef", "\nfrom focusfl.flower.secure import Secure\n\n\ndef")
    .replace("Focus(),", f"{CODED},")
    .replace("Focus())", f"{CODED}, secure=Secure())")
    .replace("minimum=clients", "secure=Secure()")
    for side, code in PLAIN.items()
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.clients, options.rounds, options.turns = 3, 2, 1
    config = {"clients": options.clients, "rounds": options.rounds}
    sites = [f"site-{i}" for i in range(options.clients)]
    with tempfile.TemporaryDirectory(prefix="focusfl-") as scratch:
        folder = Path(scratch)
        with Fleet(folder / "fleet", sites) as fleet:
            for dim in SIZES[:1] if options.quick else SIZES:
                paces: dict[str, list[float]] = {"plain": [], "secure": []}
                for turn in range(options.turns):
                    for name, sides in (("plain", PLAIN), ("secure", SECURE)):
                        FOCUS.update(sides)  # what `focus` writes and runs
                        place = folder / f"{name}-{dim}-{turn}"
                        took = focus(fleet, place, config | {"dim": dim})
                        paces[name] += took[1:]  # the first one waits for nodes
                plain, secure = (statistics.median(each) for each in paces.values())
                least = [min(each) for each in paces.values()]
                print(
                    f"d = {dim:,}, {options.clients} clients: plain {plain:.2f} s a "
                    f"round (least {least[0]:.2f}), secure {secure:.2f} s (least "
                    f"{least[1]:.2f}), ratio {secure / plain:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""What a server's books cost it, from ten sites to a million.

A real server counts pushes of a tiny model, closes rounds and comes back after `kill`;
its sites answer beside the clock. A push is its request and what receiving it takes.
Usage: python benchmarks/ledger.py [--sites 10 1000 1000000] [--rounds 20] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

import focusfl as ff
from focusfl.engines.protocol import ProtocolServer, Site

SITES = [10, 100, 1000, 10_000, 100_000, 1_000_000]
PUSHES = 1000  # a round, if there are so many sites
FOCUS = ff.Focus()


def measured(sites: int, rounds: int, dim: int) -> dict:
    """Seconds of a push, of the end of a round and of a start; bytes on disk."""
    rng = np.random.default_rng(0)
    names = tuple(f"site-{i:07d}" for i in range(sites))
    pushes, closes = [], []
    with tempfile.TemporaryDirectory() as home, _in_memory() as away:
        with _server(names, dim, home) as protocol:
            for _ in range(rounds):
                took = 0.0
                active = rng.choice(sites, min(PUSHES, sites), replace=False)
                for name in (names[i] for i in active):
                    start = time.perf_counter()
                    request = protocol.request(name)
                    took += time.perf_counter() - start
                    reply = Site(FOCUS, away, "job", name).answer(request, _gradient)
                    start = time.perf_counter()
                    assert protocol.receive(name, reply).applied
                    took += time.perf_counter() - start
                pushes.append(took / len(active))
                start = time.perf_counter()
                protocol.close_round()
                closes.append(time.perf_counter() - start)
            applied = protocol.applied
        start = time.perf_counter()
        with _server(names, dim, home) as protocol:
            restart = time.perf_counter() - start
            assert protocol.applied == applied
        written = [p.stat().st_size for p in Path(home, "job").glob("server.*")]
        return {
            "sites": sites,
            "push_us": 1e6 * float(np.median(pushes)),
            "close_ms": 1e3 * float(np.median(closes)),
            "close_mean_ms": 1e3 * float(np.mean(closes)),
            "close_most_ms": 1e3 * max(closes),
            "restart_s": restart,
            "bytes_on_disk": sum(written),
            "bytes_a_site": _memory(names, dim, home) / sites,
        }


def _memory(names: tuple[str, ...], dim: int, home: str) -> int:
    """What an open server holds, beside the names."""
    tracemalloc.start()
    with _server(names, dim, home):
        held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def _server(names: tuple[str, ...], dim: int, home: str) -> ProtocolServer:
    return ProtocolServer(FOCUS, np.zeros(dim), names, home, job="job", lr=1e-3)


def _gradient(x: np.ndarray, batch: object) -> np.ndarray:
    return 0.3 * x - 1


def _in_memory() -> tempfile.TemporaryDirectory:
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sites", type=int, nargs="+", default=SITES)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dim", type=int, default=3, help="numbers of the model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.sites, options.rounds = [10, 20], 2
    print(
        f"{'sites':>10}{'a push':>11}{'end of round':>15}{'mean':>10}{'most':>10}"
        f"{'restart':>10}{'on disk':>12}{'a site in memory':>19}"
    )
    found = []
    for sites in options.sites:
        row = measured(sites, options.rounds, options.dim)
        found.append(row)
        print(
            f"{sites:>10,}{row['push_us']:>8.0f} us{row['close_ms']:>12.2f} ms"
            f"{row['close_mean_ms']:>7.2f} ms{row['close_most_ms']:>7.0f} ms"
            f"{row['restart_s']:>8.3f} s{row['bytes_on_disk'] / 1e6:>9.3f} MB"
            f"{row['bytes_a_site']:>13,.0f} bytes",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

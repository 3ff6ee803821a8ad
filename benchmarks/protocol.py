"""What the server of a deployment takes, from ten sites to a million.

python benchmarks/protocol.py [--dim 100]
"""

import argparse
import statistics
import tempfile
import time

import numpy as np

from focusfl import Focus
from focusfl.flower.protocol import ProtocolServer, Site

ROUNDS = 5


def measure(sites: int, active: int, dim: int) -> dict[str, float]:
    """Seconds of a start, of a push and of a commit; the database's bytes a site."""
    names = [f"site-{i}" for i in range(sites)]
    with tempfile.TemporaryDirectory() as folder:
        options = {"job": "job", "lr": 0.1}

        def begin():
            return ProtocolServer(Focus(), np.zeros(dim), names, folder, **options)

        begin().close()
        start = time.perf_counter()
        server = begin()
        started = time.perf_counter() - start
        pushes, commits = [], []
        for _ in range(ROUNDS):
            for name in names[:active]:
                site = Site(Focus(), "job", name)
                start = time.perf_counter()
                request = server.request(name)
                asked = time.perf_counter() - start
                reply = site.answer(request, lambda x, batch: x - 1)
                start = time.perf_counter()
                assert server.receive(name, reply).status in ("applied", "missing")
                pushes.append(asked + time.perf_counter() - start)
            server._cached.clear()  # these sites forget
            start = time.perf_counter()
            server.close_round()
            commits.append(time.perf_counter() - start)
        size = server._store.path.stat().st_size
        server.close()
    return {
        "start": started, "push": statistics.median(pushes),
        "commit": statistics.median(commits), "bytes": size / sites,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=100)
    dim = parser.parse_args().dim
    for sites, active in ((10, 10), (1_000, 100), (1_000_000, 1_000)):
        found = measure(sites, active, dim)
        print(
            f"{sites} sites, {active} a round: start {found['start']:.3g} s, push "
            f"{1e6 * found['push']:.0f} us, commit {1e3 * found['commit']:.1f} ms, "
            f"{found['bytes']:.0f} bytes a site"
        )


if __name__ == "__main__":
    main()

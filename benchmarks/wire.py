"""Bytes at the socket with a compressor and without, and the seconds that coding takes.

A real fleet of Flower on loopback; between its SuperNodes and the SuperLink a proxy
counts every byte of TCP that sites send: replies with all headers of gRPC, and what
nodes say besides. The same fleet runs FOCUS in float32 and with Quantize(4).

python benchmarks/wire.py [--clients 2] [--rounds 5] [--dim 550000]
"""

import argparse
import json
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from deploy import FOCUS, focus

from focusfl import Quantize
from focusfl.deploy.fleet import Fleet

CODEC, REPEATS = Quantize(4), 20
# New numbers in every gradient: of what it knows already, Flower sends a checksum.
PLAIN = FOCUS | {
    "client": """\
import numpy as np

from focusfl import Focus
from focusfl.flower import client_app


def load(context):
    draw = np.random.default_rng().standard_normal
    return lambda x, batch: x - draw(x.shape).astype(x.dtype)


app = client_app(load, Focus())
"""
}
CODED = {
    side: code.replace("import Focus\n", "import Compressed, Focus, Quantize\n").replace(
        "Focus()", "Compressed(Focus(), Quantize(4))"
    )
    for side, code in PLAIN.items()
}


class Proxy:
    """Passes TCP on to a port, and counts what goes there."""

    def __init__(self, port: int):
        self.up: list[tuple[float, int]] = []  # when, and how many bytes
        self._port = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            near, _ = self._door.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # the SuperLink has stopped
                near.close()
                continue
            for ends in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        try:
            while part := source.recv(1 << 16):
                if up:
                    self.up.append((time.time(), len(part)))
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def through(fleet: Fleet) -> Proxy:
    """Have the SuperNodes of a fleet that is not yet started speak through a proxy."""
    proxy = Proxy(fleet._port)
    for node in fleet.nodes.values():
        node.command[node.command.index("--superlink") + 1] = proxy.address
    return proxy


def in_rounds(proxy: Proxy, place: Path) -> int:
    """Bytes that sites sent from the end of the first round to that of the last.

    What comes before is the start; after it sites are asked for a whole gradient each,
    once a job, to see how it ended.
    """
    lines = (place / "server" / place.name / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    ends = [event["time"] for event in events if event["event"] == "round"]
    return sum(size for at, size in proxy.up if ends[0] < at <= ends[-1])


def coding(dim: int) -> tuple[float, float]:
    """Median seconds of a site's part, encode and decode, and of a server's."""
    a = np.random.default_rng(0).standard_normal(dim).astype(np.float32)
    site, server = [], []
    for index in range(REPEATS):
        began = time.perf_counter()
        blob = CODEC.encode(a, index, 7)
        middle = time.perf_counter()
        CODEC.decode(blob, a.shape, a.dtype, index, 7)
        end = time.perf_counter()
        site.append(end - began)
        server.append(end - middle)
    return statistics.median(site), statistics.median(server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dim", type=int, default=550_000)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.dim = 2, 1000
    config = {"clients": options.clients, "rounds": options.rounds, "dim": options.dim}
    sites = [f"site-{i}" for i in range(options.clients)]
    replies, sent, paces = options.clients * (options.rounds - 1), {}, {}
    with tempfile.TemporaryDirectory(prefix="focusfl-") as scratch:
        folder = Path(scratch)
        fleet = Fleet(folder / "fleet", sites)
        proxy = through(fleet)
        with fleet:
            for name, sides in (("float32", PLAIN), ("int4", CODED)):
                FOCUS.update(sides)  # what `focus` writes and runs
                paces[name] = statistics.median(focus(fleet, folder / name, config)[1:])
                sent[name] = in_rounds(proxy, folder / name)
                print(
                    f"{name}: {sent[name] / replies:,.0f} bytes up for each of "
                    f"{replies} replies, {paces[name]:.2f} s a round",
                    flush=True,
                )
    site, server = coding(options.dim)
    spent = site + options.clients * server
    print(
        f"int4 / float32: 1/{sent['float32'] / sent['int4']:.2f} of the bytes; coding: "
        f"{1e3 * site:.1f} ms at a site, {1e3 * server:.1f} ms for each at the server, "
        f"{spent / paces['int4']:.1%} of a round"
    )


if __name__ == "__main__":
    main()

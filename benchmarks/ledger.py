"""The server's ledger from ten sites to ten million: what a push and a round cost it.

First the ledger that a deployment keeps today, a dictionary written out every round.
Then a ledger for very many: fixed lines in one mapped file, and a journal that is on
disk before a round is over. A process works through rounds and is killed in the middle;
what another one reads then must be, line by line, what the rounds in the journal say.
Usage: python benchmarks/ledger.py [--clients 10000000] [--json FILE]
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np

import focusfl as ff
from focusfl.engines.protocol.server import ProtocolServer
from focusfl.engines.protocol.site import Site

LINE = np.dtype([
    ("applied", "u8"), ("digest", "S16"), ("made", "u4"), ("counted", "u4"),
    ("number", "u8"), ("epoch", "u4"), ("gone", "u4"),
])  # fmt: skip
ENTRY = np.dtype([("client", "u8"), ("line", LINE)])
BLOCK = np.dtype([("round", "u8"), ("pushes", "u8"), ("sum", "u8")])
PUSHES = 1000  # per round
CHECKPOINT = 200  # rounds
BOOKS = (10, 100, 1000, 10_000)


class Ledger:
    """Lines of all clients in a mapped file, and the rounds since it was synchronised.

    A round is first appended to the journal, whole, and then written to the lines; so
    lines are never ahead of the journal, and reading it again does no harm.
    """

    def __init__(self, folder: Path, clients: int):
        self.table, self.path = folder / "lines", folder / "journal"
        if not self.table.exists():
            with open(self.table, "wb") as file:
                file.truncate(clients * LINE.itemsize)  # sparse: nothing is written
        self.lines = np.memmap(self.table, LINE, "r+", shape=(clients,))
        self.round = self._replay()
        self.journal = open(self.path, "ab")

    def commit(self, entries: np.ndarray) -> None:
        """Put the pushes of one round down; when this returns, they are on disk."""
        body = entries.tobytes()
        head = np.array((self.round, len(entries), zlib.crc32(body)), BLOCK)
        self.journal.write(head.tobytes() + body)
        self.journal.flush()
        os.fdatasync(self.journal.fileno())
        self.lines[entries["client"]] = entries["line"]
        self.round += 1

    def checkpoint(self) -> None:
        """Synchronise the lines and begin the journal anew."""
        self.lines.flush()
        mark = self.path.with_suffix(".new")
        with open(mark, "wb") as file:
            head = np.array((self.round, 0, zlib.crc32(b"")), BLOCK)
            file.write(head.tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(mark, self.path)
        self.journal.close()
        self.journal = open(self.path, "ab")

    def _replay(self) -> int:
        """Write the journal to the lines, drop what is torn of it; give the round."""
        if not self.path.exists():
            return 0
        content, at, done = self.path.read_bytes(), 0, 0
        while at + BLOCK.itemsize <= len(content):
            head = np.frombuffer(content, BLOCK, 1, at)[0]
            first = at + BLOCK.itemsize
            end = first + int(head["pushes"]) * ENTRY.itemsize
            if zlib.crc32(content[first:end]) != head["sum"] or end > len(content):
                break
            entries = np.frombuffer(content[first:end], ENTRY)
            self.lines[entries["client"]] = entries["line"]
            done, at = int(head["round"]) + (head["pushes"] > 0), end
        os.truncate(self.path, at)
        return int(done)


def pushes(clients: int, index: int) -> np.ndarray:
    """What arrives in a round: the same whenever it is asked for."""
    rng = np.random.default_rng((7, index))
    who = np.unique(rng.integers(0, clients, PUSHES))
    entries = np.zeros(len(who), ENTRY)
    entries["client"] = who
    line = entries["line"]
    line["applied"] = index * clients + who + 1
    line["digest"] = np.frombuffer(rng.bytes(16 * len(who)), "S16")
    line["made"] = line["counted"] = index
    line["number"] = 3 * (index + 1)
    line["epoch"] = 1
    return entries


def work(folder: Path, clients: int) -> None:
    """Run rounds for ever; somebody will kill this."""
    ledger = Ledger(folder, clients)
    while True:
        ledger.commit(pushes(clients, ledger.round))
        if ledger.round % CHECKPOINT == 0:
            ledger.checkpoint()


def killed(folder: Path, clients: int, seconds: float) -> dict:
    """Kill a process at work, read the ledger, compare it with what was sent."""
    command = [sys.executable, __file__, "--work", str(folder)]
    child = subprocess.Popen([*command, "--clients", str(clients)])
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    child.wait()
    start = time.perf_counter()
    ledger = Ledger(folder, clients)
    recovered = time.perf_counter() - start
    wanted = np.zeros(clients, LINE)
    for index in range(ledger.round):
        entries = pushes(clients, index)
        wanted[entries["client"]] = entries["line"]
    return {
        "rounds_before_the_kill": ledger.round,
        "recovery_s": recovered,
        "lines_that_differ": int((np.asarray(ledger.lines) != wanted).sum()),
    }


def many(clients: int) -> dict:
    """A ledger of so many lines: time, size, and what is left of it after a kill."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-", dir=os.environ.get("TMPDIR")))
    try:
        ledger = Ledger(folder, clients)
        rounds = [pushes(clients, index) for index in range(2 * CHECKPOINT)]
        times, checkpoints = [], []
        for entries in rounds:
            start = time.perf_counter()
            ledger.commit(entries)
            times.append(time.perf_counter() - start)
            if ledger.round % CHECKPOINT == 0:
                start = time.perf_counter()
                ledger.checkpoint()
                checkpoints.append(time.perf_counter() - start)
        return {
            "clients": clients,
            "pushes_per_round": PUSHES,
            "line_bytes": LINE.itemsize,
            "commit_ms": 1e3 * float(np.median(times)),
            "checkpoint_s": max(checkpoints),
            "journal_bytes_per_round": BLOCK.itemsize + PUSHES * ENTRY.itemsize,
            "lines_file_bytes": os.stat(folder / "lines").st_size,
            "on_disk_bytes": 512 * os.stat(folder / "lines").st_blocks,
            "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            **killed(folder, clients, 4.0),
        }
    finally:
        shutil.rmtree(folder)


def dictionary(sites: int, rounds: int = 5, active: int = 10) -> dict:
    """Today's ledger: time of a push and of the end of a round, with a tiny model."""
    rng = np.random.default_rng(0)
    problem = ff.problems.Quadratic(np.eye(3)[None], rng.normal(size=(1, 3)))
    names = [f"site-{i}" for i in range(sites)]
    data = {name: leaf[0] for name, leaf in problem.data.items()}
    counts, closes = [], []

    def gradient(x, batch):
        return problem.objective.grad(x, data, batch)

    with tempfile.TemporaryDirectory(prefix="ledger-") as home:
        folder = Path(home)
        with ProtocolServer(
            ff.Focus(), np.zeros(3), names, folder / "server", job="ledger", lr=1e-3
        ) as protocol:
            for _ in range(rounds):
                for i in rng.choice(sites, min(active, sites), replace=False):
                    site = Site(ff.Focus(), folder / "sites", "ledger", names[i])
                    reply = site.answer(protocol.request(names[i]), gradient)
                    start = time.perf_counter()
                    assert protocol.receive(names[i], reply).applied
                    counts.append(time.perf_counter() - start)
                start = time.perf_counter()
                protocol.close_round()
                closes.append(time.perf_counter() - start)
            size = (folder / "server" / "ledger" / "server.ledger").stat().st_size
    return {
        "sites": sites,
        "push_ms": 1e3 * float(np.median(counts)),
        "round_end_ms": 1e3 * float(np.median(closes)),
        "ledger_bytes": size,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=10**7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work, options.clients)
    today = [dictionary(sites) for sites in BOOKS]
    print("today: a dictionary, written out every round")
    print(f"{'sites':>12}{'a push':>12}{'end of round':>16}{'on disk':>12}")
    for row in today:
        print(
            f"{row['sites']:>12,}{row['push_ms']:>9.2f} ms"
            f"{row['round_end_ms']:>13.1f} ms{row['ledger_bytes'] / 1e6:>9.2f} MB"
        )
    found = many(options.clients)
    print(f"\na ledger of {options.clients:,} lines, {PUSHES} pushes a round")
    for name, value in found.items():
        print(f"{name:>28}: {value:,.6g}")
    if options.json:
        options.json.write_text(
            json.dumps({"dictionary": today, "ledger": found}, indent=2)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

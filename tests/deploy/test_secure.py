"""Secure sums on real SuperNodes: exact through all that goes wrong, and in secret."""

import contextlib

import numpy as np
import pytest
from chaos import chaotic

from focusfl.deploy import study
from focusfl.deploy.local import local_study
from focusfl.flower.protocol import Refused
from focusfl.flower.protocol.messages import load_flat
from focusfl.flower.secure.held import read_parts

QUADRATIC = """
rounds = 26
lr = 0.22
[problem]
kind = "random_quadratic"
dim = 6
L = 1.02
[participation.full]
[algorithms.focus]
"""
FRACTION = 2.0**44  # of the compressor: a push is whole numbers of this
LEAST = 1e-6  # of a number that is looked for: smaller ones are much like each other


class Search:
    """Knows what sites push, out of their own files, and looks for it elsewhere."""

    def __init__(self, folder, this):
        self.folder, self.known, self.found = folder, {}, set()
        self.files = {
            site: folder / "sites" / site / "state" / this.study.name / f"{site}.state"
            for site in this.sites
        }

    def __call__(self, event):
        """Learn the pushes of now, and look for them while they may still be there."""
        now = {}
        for site, file in self.files.items():
            with contextlib.suppress(OSError, Refused, KeyError):  # none yet
                own = map(load_flat, read_parts(file).values())
                sent = [flat["inner/grad"] - flat["unsent/y"] for flat in own]
                for up in (*sent, *np.diff(sent, axis=0), *-np.diff(sent, axis=0)):
                    up = np.round(up * FRACTION) / FRACTION
                    if np.abs(up[:2]).min() > LEAST:
                        now[site, up.tobytes()] = up
        self.known |= now
        self.look(now if event["event"] != "end" else self.known)

    def look(self, pushes):
        """Note where a push is, among all that the server's machine writes."""
        for file in self.folder.rglob("*"):
            inside = file.relative_to(self.folder).parts
            own = inside[0] == "sites" or inside[:2] in self._logs
            if own or not file.is_file():
                continue
            with contextlib.suppress(FileNotFoundError):  # it is gone by now
                text = file.read_bytes()
                for which, up in pushes.items():
                    if any(form in text for form in forms(up)):
                        self.found.add((which[0], inside))

    @property
    def _logs(self):
        return {("logs", f"{site}.log") for site in self.files}


def forms(up):
    """The first two numbers of a push as somebody may write them."""
    first = np.asarray(up[:2])
    whole = np.rint(first * FRACTION).astype("<i8")
    binary = [first.astype(kind).tobytes() for kind in ("<f8", ">f8", "<f4", ">f4")]
    binary += [whole.tobytes(), whole.astype(">i8").tobytes()]
    return binary + [f"{first[0]:.9g}".encode(), str(whole[0]).encode()]


def run(folder, secure, rounds, plan=None, **how):
    file = folder / "study.toml"
    file.write_text(f"{QUADRATIC}[secure]\nminimum = {secure}\n")
    this = study.load(file, [f"rounds={rounds}"], None, 4)
    said, search = [], Search(folder / "run", this)

    def watch(event):
        said.append(event)
        search(event)

    done = local_study(
        this, folder / "run", watch, driver=chaotic(plan or {}), tls=True,
        settings={"deadline": 60.0, "patience": 60.0}, **how,
    )  # fmt: skip
    return said, search, done


@pytest.mark.slow
def test_sites_and_a_server_that_are_killed_leave_it_exact_and_secret(tmp_path):
    """4 SuperNodes with TLS, of which three are killed, and the server: to 1e-10."""
    plan = {2: "node:0", 5: "node:1", 8: "node:2", 11: "server"}
    said, search, done = run(tmp_path, 3, 26, plan)
    kinds = [event["event"] for event in said]
    assert kinds.count("begin") == 2 and kinds.count("chaos") == 4
    assert done.metrics["distance"] <= 1e-10 and not done.why
    assert (done.masks.sum(1) >= 3).all() and (done.masks.sum(0) < 26).all()
    counted = {site for site, _ in search.known}
    assert counted == {*search.files} and len(search.known) > 20
    assert not search.found
    up = next(iter(search.known.values()))
    (tmp_path / "run" / "leak").write_bytes(b"x" + up.tobytes())
    search.look(search.known)
    assert search.found  # it finds a push where there is one

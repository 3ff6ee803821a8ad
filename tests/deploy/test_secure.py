"""Secure sums on real SuperNodes: exact through all that goes wrong, and in secret."""

import contextlib

import numpy as np
import pytest
from chaos import chaotic

from focusfl.cli import main
from focusfl.core.models import read_model
from focusfl.deploy import study
from focusfl.deploy.local import local_study
from focusfl.flower.protocol.messages import load_flat
from focusfl.flower.protocol.store import HERE, Store
from focusfl.flower.secure import Keys
from focusfl.flower.secure.journal import Journal, about_site, open_base, server_fields

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
LEAST = 1e-6  # of a number that is looked for: smaller ones are much like each other


class Search:
    """Opens what the server keeps, by the sites' key, and looks for it in the clear."""

    def __init__(self, folder, this):
        self.folder, self.known, self.found, self.name = folder, {}, set(), this.study.name

    def __call__(self, event):
        """Learn the states and the model of now, and look for them and their differences."""
        file = self.folder / "server" / self.name / "server.db"
        copy = self.folder.parent / "copy.db"
        with contextlib.suppress(OSError, ValueError):  # none yet, or half a page of it
            copy.write_bytes(file.read_bytes())
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    beside = copy.with_name(copy.name + suffix)
                    beside.write_bytes(file.with_name(file.name + suffix).read_bytes())
            self.learn(Store(copy))
        self.look(self.known)

    def learn(self, store):
        keys = Keys.read(self.folder / "keys" / "sums.key")
        try:
            for row in store.sites(HERE):
                if row.state:
                    flat = load_flat(keys.open(row.state, about_site(self.name, row.name)))
                    self.know(row.name, flat["grad"])
            journal = Journal.from_bytes(store.job().server)
            base = server_fields(open_base(journal, keys, self.name))
            if not journal.base.startswith(bytes(4)):
                self.know("model", base["x"])
        finally:
            store.close()

    def know(self, which, value):
        before = [v for (name, _), v in self.known.items() if name == which]
        for secret in (value, *(value - other for other in before[-1:])):
            if np.abs(secret[:2]).min() > LEAST:
                self.known[which, secret.tobytes()] = secret

    def look(self, secrets):
        """Note where one is, among all that the server's machine writes."""
        for file in self.folder.rglob("*"):
            inside = file.relative_to(self.folder).parts
            own = inside[0] in ("sites", "keys") or inside[-1].startswith("site-")
            if own or not file.is_file():
                continue
            with contextlib.suppress(FileNotFoundError):  # it is gone by now
                text = file.read_bytes()
                for which, secret in secrets.items():
                    if any(form in text for form in forms(secret)):
                        self.found.add((which[0], inside))


def forms(secret):
    """The first two numbers as somebody may write them."""
    first = np.asarray(secret[:2])
    whole = np.rint(first * 2.0**44).astype("<i8")
    binary = [first.astype(kind).tobytes() for kind in ("<f8", ">f8", "<f4", ">f4")]
    return [*binary, whole.tobytes(), f"{first[0]:.9g}".encode(), str(whole[0]).encode()]


@pytest.mark.slow
def test_sites_and_a_server_that_are_killed_leave_it_exact_and_secret(tmp_path, capsys):
    """4 SuperNodes with TLS, of which three are killed, and the server: to 1e-10."""
    file, folder = tmp_path / "study.toml", tmp_path / "run"
    file.write_text(f"{QUADRATIC}[secure]\nminimum = 3\n")
    this = study.load(file, [], None, 4)
    heard, search = [], Search(folder, this)

    def watch(event):
        heard.append(event)
        if event["event"] != "end":  # then the model is opened, here where the key is
            search(event)

    plan = {2: "node:0", 5: "node:1", 8: "node:2", 11: "server"}
    done = local_study(
        this, folder, watch, driver=chaotic(plan), tls=True,
        settings={"deadline": 60.0, "patience": 60.0},
    )  # fmt: skip
    kinds = [event["event"] for event in heard]
    assert kinds.count("begin") == 2 and kinds.count("chaos") == 4
    assert done.metrics["distance"] <= 1e-10 and done.gap <= 1e-12 and not done.why
    assert (done.masks.sum(1) >= 3).all() and (done.masks.sum(0)[:3] < 26).all()
    assert len({name for name, _ in search.known}) == 5 and len(search.known) > 20
    assert not search.found
    secret = next(iter(search.known.values()))
    (folder / "leak").write_bytes(b"x" + secret.tobytes())
    search.look(search.known)
    assert search.found  # it finds one where there is one
    database = folder / "server" / this.study.name / "server.db"
    out, key = tmp_path / "model.safetensors", folder / "keys" / "sums.key"
    assert main(["deploy", "open", str(database), "--key", str(key), "--out", str(out)]) == 0
    assert "the model after 25 rounds" in capsys.readouterr().out
    assert np.abs(read_model(out) - done.x).max() < 1e-6

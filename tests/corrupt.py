"""Damage files of every kind at random, and see whether whoever reads them notices.

python tests/corrupt.py --many 2400 --seed 7     # the seed replays it

A try is one damaged file in a fresh copy of a folder. It is detected if its reader
raises or says a word, or if what it held is run again; harmless if the reader gives
what it gave before; and silent if it gives anything else.
"""

import argparse
import contextlib
import io
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from helpers import Stopped, bits, quadratic, simulate, stop_after

import focusfl as ff
from focusfl.core import files
from focusfl.core.fingerprint import fingerprint
from focusfl.simulation import plan as layout
from focusfl.simulation import runner as simulation
from focusfl.studies import runner, spec, store, verify
from focusfl.suite import store as suite

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Flower imports warns of itself
    from focusfl.deploy import record

STUDY = """
rounds = 20
lr = 1e-3
seeds = 2
per_client = true
models = "last"
[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12
[participation.some]
kind = "bernoulli"
p = 0.4
[algorithms.focus]
[algorithms.fedavg]
"""
OUTCOMES = ("detected", "harmless", "silent")


class Kind(NamedTuple):
    """Files of a kind, in a folder that is copied, and their reader."""

    folder: Path
    files: str  # a pattern
    read: object  # of a folder: what is there, by a name
    older: Path | None = None  # the folder as it was once
    may_vanish: bool = True


def kinds(place: Path) -> dict[str, Kind]:
    """One of each, made in a folder."""
    made = _study(place), _checkpoints(place), _suite(place)
    return dict(item for some in made for item in some.items()) | _archive(place)


def _study(place: Path) -> dict[str, Kind]:
    (file := place / "study.toml").write_text(STUDY)
    study = spec.load(file)
    runner.run_in_folder(spec.load(file, ["rounds=10"]), place / "older")
    runner.run_in_folder(study, place / "study")

    def read(where):
        found = store.Study.load(where)
        return fingerprint(
            found.manifest, found.participants, found.model(algorithm="focus", seed=0),
            repr(found.runs[0].row), [(run.curves, run.clients) for run in found.runs],
            [np.asarray(column) for _, column in found.table().items()],
        )  # fmt: skip

    def resume(where):
        here = runner.Store(where, study)
        if here.damaged or here.left():
            raise ValueError("run again")
        return fingerprint([(run.curves, run.clients) for run in here.everything()])

    tables = {
        name: Kind(place / "study", name, read, place / "older")
        for name in ("manifest.json", "participation.parquet")
    }
    runs = {
        f"runs/*{end}": Kind(place / "study", f"runs/{end}", resume)
        for end in ("*[0-9a-f].parquet", "*.clients.parquet")
    }
    model = read_model_of(place / "study")
    return tables | runs | {"models/*": Kind(place / "study", model, read)}


def read_model_of(where: Path) -> str:
    """The model that is read, as a pattern."""
    rows = store.Study.load(where).manifest["runs"]
    return next(r["model"] for r in rows if r["algorithm"] == "focus" and not r["seed"])


def _checkpoints(place: Path) -> dict[str, Kind]:
    problem, few = quadratic(), layout.ChunkPolicy(8, 50, 3)
    found = {}
    for state in ("device", "disk"):

        def run(where, state=state, **more):
            real = simulation.chunk_policy
            simulation.chunk_policy = lambda *_: few
            try:
                return simulate(
                    ff.Focus(), problem, ff.participation.Uniform(4), rounds=48,
                    lr=0.02, client_state=state, checkpoint=where, checkpoint_every=0,
                    on_divergence="ignore", **more,
                )  # fmt: skip
            finally:
                simulation.chunk_policy = real

        here, older = place / state, place / f"{state}-older"
        for rounds in (16, 32):
            with contextlib.suppress(Stopped):
                run(here, callbacks=stop_after(rounds))
            if rounds == 16:
                shutil.copytree(here, older)

        def read(where, run=run):
            return fingerprint(repr(sorted(bits(run(where)).items())))

        found[f"checkpoint.npz ({state})"] = Kind(here, "checkpoint.npz", read, older)
        if state == "disk":
            found["clients-*.rows"] = Kind(here, "clients-*.rows", read, older)
    return found


def _suite(place: Path) -> dict[str, Kind]:
    here = suite.Store(place / "suite")
    for row in suite.load()[:3]:
        here.put(row, {})
    alone = suite.save(place / "alone" / suite.RESULTS, suite.load()[:3]).parent

    def read(where):
        if len(found := suite.Store(where).rows()) < 3:
            raise ValueError("run again")
        return fingerprint(repr(found))

    return {
        "suite runs/*.json": Kind(place / "suite", "runs/*.json", read),
        "suite results.json": Kind(alone, suite.RESULTS, read),
    }


def _archive(place: Path) -> dict[str, Kind]:
    """The model that a deployment leaves, which others read."""
    model = record.archive({"w": np.linspace(0, 1, 300), "b": np.ones(3)})
    file = files.write(place / "deployed" / record.MODEL, model, sealed=True)

    def read(where):
        if any(one.state != "ok" for one in verify.verify(where)):
            raise ValueError("damaged, or without a checksum")
        with np.load(where / record.MODEL) as arrays:
            return fingerprint(dict(arrays))

    return {record.MODEL: Kind(file.parent, record.MODEL, read)}


def damage(kind: Kind, where: Path, rng: np.random.Generator) -> str | None:
    """Damage one file; say how, or None if it is as it was."""
    paths = sorted(where.glob(kind.files))
    path = paths[rng.integers(len(paths))]
    was = path.read_bytes()
    ways = ["flip", "flip", "cut", "zeros", "noise"]
    others = sorted(set(path.parent.glob(f"*{path.suffix}")) - {path})
    if kind.may_vanish:
        ways += ["gone", "older or another"] if kind.older or others else ["gone"]
    way, now = ways[rng.integers(len(ways))], bytearray(was)
    start = int(rng.integers(len(was)))
    stop = min(len(was), start + int(2 ** rng.integers(0, 13)))
    if way == "flip":
        now[start] ^= 1 << int(rng.integers(8))
    elif way == "cut":
        del now[start:]
    elif way == "zeros":
        now[start:stop] = bytes(stop - start)
    elif way == "noise":
        now[start:stop] = rng.bytes(stop - start)
    elif way == "gone":
        path.unlink()
        return way
    elif kind.older:
        now = (kind.older / path.relative_to(where)).read_bytes()
    else:
        now = others[rng.integers(len(others))].read_bytes()
    path.write_bytes(now)
    return way if bytes(now) != was else None


def attempt(kind: Kind, expected: str, where: Path, rng: np.random.Generator) -> str:
    """One try: how, and what came of it."""
    while True:
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(kind.folder, where)
        if way := damage(kind, where, rng):
            break
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            same = kind.read(where) == expected
    except (ValueError, OSError):  # one clear line; anything else is a bug
        return f"{way}: detected"
    if said.getvalue():
        return f"{way}: detected"
    return f"{way}: harmless" if same else f"{way}: silent"


def corrupt(made: dict[str, Kind], place: Path, many: int, seed: int) -> dict[str, Counter]:
    """So many tries of each kind: how often what came of it."""
    rng, found = np.random.default_rng(seed), {}
    for name, kind in made.items():
        shutil.copytree(kind.folder, place / "sound")
        expected = kind.read(place / "sound")
        shutil.rmtree(place / "sound")
        found[name] = Counter(attempt(kind, expected, place / "copy", rng) for _ in range(many))
    return found


def outcomes(found: Counter) -> dict[str, int]:
    """By what came of it, however the damage was done."""
    return {end: sum(n for way, n in found.items() if way.endswith(end)) for end in OUTCOMES}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=2400, help="tries in all")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as place:
        made = kinds(Path(place))
        each = -(-options.many // len(made))
        found = corrupt(made, Path(place), each, options.seed)
    print(f"{'':28}{'tried':>7}" + "".join(f"{end:>10}" for end in OUTCOMES))
    for name, own in found.items():
        told = outcomes(own)
        line = "".join(f"{told[end]:10}" for end in OUTCOMES)
        print(f"{name:28}{sum(told.values()):7}" + line)
    whole = outcomes(sum(found.values(), Counter()))
    line = "".join(f"{whole[end]:10}" for end in OUTCOMES)
    print(f"{'all':28}{sum(whole.values()):7}" + line)
    return bool(whole["silent"])


if __name__ == "__main__":
    sys.exit(main())

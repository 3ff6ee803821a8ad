"""Both roads to every data set: our files, and the publishers' files from a mirror.

The mirror serves what publishers serve, written anew from the content of our files. All
of it must have the publishers' checksums, but for CIFAR-10's compressed archive, for
recordings, of which git says which are executable, and for the logs of phones, of which
ours are the first 100.
"""

import gzip
import io
import os
import tarfile
import threading
import wave
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jax
import numpy as np
import pytest
from flamby import published

from focusfl import data
from focusfl.data import registry

pytestmark = [pytest.mark.slow, pytest.mark.needs("data")]
UNLIKE = ("cifar10", "spoken_digits", "flash_availability", "flash_logs")
# Labels of -1 and 1, the nonzero value, what ends a line, and what the last one lacks.
TEXTS = {
    "a9a": ("-1", "+1", "1", " \n", 2), "a9a_t": ("-1", "+1", "1", " \n", 0),
    "w8a": ("-1", "+1", "1", " \n", 1), "mushrooms": ("1", "2", "1", " \r\n", 2),
    "phishing": ("0", "1", "0.18257", "\r\n", 2),
}  # fmt: skip


def libsvm_text(name, ours):
    minus, plus, value, end, less = TEXTS[name]
    x, y = data.libsvm(name, ours)
    lines = []
    for row, label in zip(x, y, strict=True):
        pairs = [f"{column + 1}:{value}" for column in np.flatnonzero(row)]
        lines.append(" ".join([plus if label > 0 else minus, *pairs]) + end)
    whole = "".join(lines).encode()
    return whole[: len(whole) - less]


def spoken_digits(ours):
    with np.load(ours / "spoken_digits" / "spoken_digits.npz") as file:
        found = {name: file[name] for name in file.files}
    parts = np.split(found["audio"], found["offsets"][1:-1])
    labels = zip(found["digit"], found["speaker"], found["take"], strict=True)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for part, label in zip(parts, labels, strict=True):
            sound = io.BytesIO()
            with wave.open(sound, "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(part.astype("<i2").tobytes())
            name = "_".join(map(str, label))
            archive.writestr(f"it-commit/recordings/{name}.wav", sound.getvalue())
    return out.getvalue()


def cifar10(ours):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for k, part in enumerate(data.DATA_SETS["cifar10"].others[0], 1):
            with np.load(ours / part) as file:
                x, y = file["x"], file["y"]
            rows = np.concatenate([y[:, None], x.reshape(len(x), -1)], 1)
            name = f"data_batch_{k}.bin" if k < 6 else "test_batch.bin"
            about = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            about.size = rows.nbytes
            archive.addfile(about, io.BytesIO(rows.astype(np.uint8).tobytes()))
    return out.getvalue()


@pytest.fixture(scope="module")
def ours():
    return Path(os.environ["FOCUSFL_DATA"])


@pytest.fixture(scope="module")
def mirror(ours, tmp_path_factory):
    """The address of a server with the publishers' files."""
    root = tmp_path_factory.mktemp("mirror")

    def put(file, content):
        path = root / file.url.partition("://")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    files = {name: entry.files for name, entry in data.DATA_SETS.items()}
    for name in TEXTS:
        put(files[name][0], libsvm_text(name, ours))
    put(files["spoken_digits"][0], spoken_digits(ours))
    put(files["cifar10"][0], cifar10(ours))
    with gzip.open(ours / "flash_state_traces_100dev.json.gz") as logs:
        put(files["flash_logs"][0], logs.read())
    for name in ("heart_disease", "tcga_brca", "omniglot", "shakespeare"):
        for file in files[name]:
            put(file, (ours / file.path).read_bytes())
    for file in published.RESULTS.files:
        put(file, (ours / file.path).read_bytes())
    handler = partial(SimpleHTTPRequestHandler, directory=root)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def away(mirror, tmp_path, monkeypatch):
    """No folder of ours, an empty cache, and a mirror."""
    before = dict(registry.DATA_SETS)
    for name in UNLIKE:
        own = before[name]
        files = tuple(file._replace(checksum="") for file in own.files)
        registry.DATA_SETS[name] = own._replace(files=files)
    monkeypatch.delenv("FOCUSFL_DATA")
    monkeypatch.delenv("FOCUSFL_OFFLINE")
    monkeypatch.setenv("FOCUSFL_MIRROR", mirror)
    monkeypatch.setenv("FOCUSFL_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    registry.DATA_SETS.update(before)


LOADERS = {
    **{name: partial(data.libsvm, name) for name in TEXTS},
    "heart_disease": data.heart_disease,
    "tcga_brca": data.tcga_brca,
    "spoken_digits": data.spoken_digits,
    "omniglot": data.omniglot,
    "shakespeare": data.shakespeare,
    "flash_logs": data.flash_logs,
}


def check_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        assert np.array_equal(one, other)


@pytest.mark.parametrize("name", LOADERS)
def test_what_a_mirror_serves_is_what_was_used_so_far(name, ours, away):
    load = LOADERS[name]
    fetched = load()
    files = [str(p.relative_to(away)) for p in away.rglob("*") if p.is_file()]
    assert sorted(files) == sorted(f.path for f in data.DATA_SETS[name].files)
    check_same(fetched, load(data_dir=ours))


def test_the_table_of_phones_comes_of_their_logs(ours, away):
    fetched = data.flash_availability()  # of 100 phones, 69 of them known well enough
    assert fetched.shape == (241, 69)
    assert np.array_equal(fetched, data.flash_availability(ours)[:, :69])


def test_published_results_are_fetched(ours, away):
    paths = data.fetch(published.RESULTS)
    assert len(paths) == 2 * len(published.SEEDS)
    for path in paths:
        assert path.read_bytes() == (ours / path.relative_to(away)).read_bytes()


def test_images_from_their_archive_are_those_of_our_parts(ours, away):
    for a, b in zip(data.cifar10(), data.cifar10(ours), strict=True):
        assert np.array_equal(a, b)

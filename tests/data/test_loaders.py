"""Loaders: small files made here, and the real ones where FOCUSFL_DATA has them."""

import gzip
import hashlib
import io
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from focusfl import data
from focusfl.data import images, registry


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and no other place."""
    monkeypatch.delenv("FOCUSFL_DATA", raising=False)
    monkeypatch.setenv("FOCUSFL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# Places


def test_a_folder_is_the_argument_else_the_environment_else_the_cache(tmp_path, monkeypatch, cache):
    assert data.folder() == cache
    monkeypatch.delenv("FOCUSFL_CACHE")
    assert data.folder() == Path.home() / ".cache" / "focusfl"
    monkeypatch.setenv("FOCUSFL_DATA", str(tmp_path))
    assert data.folder() == tmp_path
    assert data.folder("$FOCUSFL_DATA/here") == tmp_path / "here"
    assert data.folder("~/here") == Path.home() / "here"


LOADERS = {
    "cifar10": data.cifar10,
    "a9a": lambda data_dir=None: data.libsvm("a9a", data_dir),
    "heart_disease": data.heart_disease,
    "tcga_brca": data.tcga_brca,
    "spoken_digits": data.spoken_digits,
    "omniglot": lambda data_dir=None: data.omniglot(data_dir=data_dir),
    "shakespeare": lambda data_dir=None: data.shakespeare(data_dir=data_dir),
    "flash_availability": data.flash_availability,
    "flash_logs": data.flash_logs,
    "mnist": data.mnist,
    "fashion_mnist": data.fashion_mnist,
}


@pytest.mark.parametrize("name", LOADERS)
def test_missing_data_says_what_where_and_how(name, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("FOCUSFL_DATA", str(tmp_path))
    with pytest.raises(ValueError) as caught:
        LOADERS[name]()
    for part in (f"data set {name} is missing", str(tmp_path), f"{cache} (no such"):
        assert part in str(caught.value)
    assert f"`focusfl data fetch {name}` fetches it" in str(caught.value)
    assert "FOCUSFL_OFFLINE is set" in str(caught.value)
    with pytest.raises(ValueError) as caught:
        LOADERS[name](tmp_path / "there")
    assert f"looked in {tmp_path / 'there'} (no such folder) for" in str(caught.value)
    assert str(cache) not in str(caught.value)  # a folder given by name is the only one


def test_the_files_to_provide_are_named(cache):
    with pytest.raises(
        ValueError,
        match="for cifar-10-binary.tar.gz, or cifar10/train_1",
    ):
        data.cifar10()


def test_a_bare_import_brings_no_network_and_no_tables():
    code = "import sys, focusfl.data; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "pandas", "scipy", "torch", "pooch", "requests"} & set(out.stdout.split())


# LIBSVM


def write(folder, text, name="small"):
    (folder / name).write_text(text)
    return folder / name


def test_text_files_are_read(tmp_path):
    path = write(tmp_path, "+1 1:0.5 3:-2 # a note\n\n-1\n1 2:1e-3\n")
    x, y = data.read_libsvm_text(path)
    assert x.tolist() == [[0.5, 0, -2], [0, 0, 0], [0, 1e-3, 0]]
    assert y.tolist() == [1, -1, 1]
    assert data.read_libsvm_text(path, 5).x.shape == (3, 5)


@pytest.mark.parametrize("labels", ["0 1", "1 2", "-1 1", "1 3"])
def test_of_two_labels_the_larger_is_1(tmp_path, labels):
    path = write(tmp_path, "\n".join(f"{label} 1:1" for label in labels.split()))
    assert data.read_libsvm_text(path).y.tolist() == [-1, 1]


@pytest.mark.parametrize(
    "text, message",
    [
        ("1 1:1\n1 2", r"line 2: entries must look like 3:0.5; got '2'"),
        ("1 a:1", "line 1: entries must look like .* got 'a:1'"),
        ("1 -2:1", "line 1: entries must look like .* got '-2:1'"),
        ("1 2:x", "line 1: the value of column 2 must be a number; got 'x'"),
        ("1 2:nan", "line 1: the value of column 2 must be a number; got 'nan'"),
        ("spam 2:1", "line 1: the label must be a number; got 'spam'"),
        ("1 0:1", "line 1: columns must increase from 1 to 4; got 0 after 0"),
        ("\n1 3:1 3:1", "line 2: columns must increase from 1 to 4; got 3 after 3"),
        ("1 5:1", "line 1: columns must increase from 1 to 4; got 5 after 0"),
        ("1 1:1\n2 1:1\n3 1:1", r"must have two labels.* got \[1. 2. 3.\]"),
        ("# nothing", "must have a line per sample; got an empty file"),
    ],
)
def test_malformed_lines_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        data.read_libsvm_text(write(tmp_path, text), 4)


def test_unreadable_text_and_unknown_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot read .*nowhere as LIBSVM text"):
        data.read_libsvm_text(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="one of a9a, a9a_t, w8a.*; got 'a8a'"):
        data.libsvm("a8a")


def test_a_table_that_is_something_else_is_refused(tmp_path):
    np.savez(tmp_path / "libsvm_binary.npz", w8a_y=np.ones(2))
    with pytest.raises(ValueError, match="must hold w8a_y, w8a_.*; w8a_indptr, .* missing"):
        data.libsvm("w8a", tmp_path)


def test_the_text_of_the_collection_will_do(tmp_path):
    (tmp_path / "libsvm").mkdir()
    write(tmp_path / "libsvm", "-1 3:1\n+1 121:1\n", "a9a.t")
    x, y = data.libsvm("a9a_t", tmp_path)
    assert x.shape == (2, 123) and y.tolist() == [-1, 1]


@pytest.mark.parametrize(
    "name, rows, dim, positive",
    [
        ("a9a", 32561, 123, 7841),
        ("a9a_t", 16281, 123, 3846),
        ("w8a", 49749, 300, 1479),
        ("mushrooms", 8124, 112, 4208),
        ("phishing", 11055, 68, 6157),
    ],
)
def test_real_tables_have_the_known_sizes(real_data, name, rows, dim, positive):
    x, y = data.libsvm(name, real_data)
    assert x.shape == (rows, dim) and x.dtype == y.dtype == np.float64
    assert np.sum(y == 1) == positive and np.sum(y == -1) == rows - positive
    assert len(np.unique(x)) == 2  # nothing, and the one shared value
    if name == "mushrooms":
        assert np.all(x.sum(1) == 21)  # one of each attribute


# CIFAR-10

PARTS = data.DATA_SETS["cifar10"].others[0]
X = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), np.uint8)
Y = np.arange(12, dtype=np.uint8) % 10


def record(x, y):
    """The layout of the binary batches: a label, then red, green and blue."""
    return b"".join(bytes([b]) + a.tobytes() for a, b in zip(x, y, strict=True))


def archive(folder, monkeypatch, batch=record, x=X, y=Y, skip=()):
    """Write twelve images in six batches, and let their checksum be the published."""
    path = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for i, file in enumerate(images.BATCHES):
            if file not in skip:
                content = batch(x[2 * i : 2 * i + 2], y[2 * i : 2 * i + 2])
                about = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
    entry = data.DATA_SETS["cifar10"]
    checksum = f"md5:{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"
    small = entry._replace(files=(entry.files[0]._replace(checksum=checksum),))
    monkeypatch.setitem(registry.DATA_SETS, "cifar10", small)


def check_small(found):
    assert np.array_equal(found.train_x, X[:10].transpose(0, 2, 3, 1))
    assert np.array_equal(found.test_x, X[10:].transpose(0, 2, 3, 1))
    assert np.array_equal(found.train_y, Y[:10])
    assert np.array_equal(found.test_y, Y[10:])


def test_the_archive_is_read(tmp_path, monkeypatch, cache):
    archive(tmp_path, monkeypatch)
    check_small(data.cifar10(tmp_path))


def test_parts_are_read(tmp_path, cache):
    (tmp_path / "cifar10").mkdir()
    for i, file in enumerate(PARTS):
        two = slice(2 * i, 2 * i + 2)
        np.savez(tmp_path / file, x=X[two], y=Y[two])
    check_small(data.cifar10(tmp_path))


def test_a_damaged_archive_is_named_with_both_checksums(tmp_path, cache):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"spam")
    wanted, got = "c32a1d4ab5d03f1284b67883e8d87530", "e09f6a7593f8ae3994ea57e1117f67ec"
    with pytest.raises(ValueError, match=f"gz is damaged: its md5 must be {wanted}; got {got}"):
        data.cifar10(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"y": Y + 5}, "data_batch_3.bin: labels must lie in 0..9; got 9..10"),
        ({"skip": ["test_batch.bin"]}, "test_batch.bin is missing"),
        ({"batch": lambda x, y: b"spam"}, "3073 bytes per image; got 4 in all"),
    ],
)
def test_impossible_archives_are_refused(tmp_path, monkeypatch, cache, change, message):
    archive(tmp_path, monkeypatch, **change)
    with pytest.raises(ValueError, match=message):
        data.cifar10(tmp_path)


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"x": X}, "train_1.npz must hold x, y; y is missing"),
        ({"x": X.astype(float), "y": Y}, "of uint8 .* got .* of float64"),
        ({"x": X, "y": Y[1:]}, r"one label each; got .* and \(11,\)"),
        ({"x": X, "y": Y + 1}, r"train_1.npz: labels must lie in 0..9; got 1..10"),
    ],
)
def test_impossible_parts_are_refused(tmp_path, cache, arrays, message):
    (tmp_path / "cifar10").mkdir()
    for file in PARTS:
        np.savez(tmp_path / file, **arrays)
    with pytest.raises(ValueError, match=message):
        data.cifar10(tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_a_damaged_part_is_named(tmp_path, cache, method):
    (tmp_path / "cifar10").mkdir()
    for file in PARTS:
        with zipfile.ZipFile(tmp_path / file, "w", method) as out:
            for name, array in (("x", X), ("y", Y)):
                with out.open(f"{name}.npy", "w") as entry:
                    np.lib.format.write_array(entry, array)
    part = tmp_path / PARTS[3]
    content = bytearray(part.read_bytes())
    content[200:20_000] = b"\xff" * 19_800
    part.write_bytes(content)
    with pytest.raises(ValueError, match="cannot read .*train_4.npz as an .npz file"):
        data.cifar10(tmp_path)


def test_a_real_part_is_the_real_test_set(real_data):
    with np.load(real_data / "cifar10" / "test.npz") as file:
        x, y = file["x"], file["y"]
    assert x.shape == (10_000, 3, 32, 32) and np.all(np.bincount(y) == 1000)
    assert y[:5].tolist() == [3, 8, 8, 0, 6]  # cat, ship, ship, airplane, frog


@pytest.mark.slow
def test_the_real_images_have_the_known_mean(real_data, cache):
    found = data.cifar10(real_data)
    assert found.train_x.shape == (50_000, 32, 32, 3)
    assert np.all(np.bincount(found.train_y) == 5000)
    mean = found.train_x.reshape(-1, 3).mean(0) / 255
    assert np.allclose(mean, (0.4914, 0.4822, 0.4465), atol=1e-4)  # as rounded


# MNIST


def idx(array):
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_files_are_read(tmp_path, name):
    pixels = np.arange(4 * 28 * 28, dtype=np.uint8).reshape(4, 28, 28)
    labels = np.array([7, 2, 1, 0], np.uint8)
    (tmp_path / name).mkdir()
    arrays = (pixels[:3], labels[:3], pixels[3:], labels[3:])
    for file, array in zip(data.DATA_SETS[name].files, arrays, strict=True):
        (tmp_path / file.path).write_bytes(idx(array))
    found = getattr(data, name)(tmp_path)
    assert np.array_equal(found.train_x[..., 0], pixels[:3])
    assert found.test_x.shape == (1, 28, 28, 1) and found.train_y.tolist() == [7, 2, 1]
    for content, message in [
        (b"spam", "cannot read .*t10k-labels.* as an idx file"),
        (idx(labels)[:-9], "cannot read .*t10k-labels.* as an idx file"),
        (idx(labels), r"a label below 10 each; got .*\(4,\)"),
        (idx(labels[:1] + 9), "a label below 10 each"),
    ]:
        (tmp_path / file.path).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            getattr(data, name)(tmp_path)


# Hospitals


def test_heart_disease_has_the_patients_of_flamby(real_data):
    found = data.heart_disease(real_data)
    assert found.x.shape == (740, 13) and len(found.features) == 13
    assert np.bincount(found.center).tolist() == [303, 261, 46, 130]
    assert set(found.y) == {0, 1} and not np.isnan(found.x).any()
    first = dict(zip(found.features, found.x[0], strict=True))
    assert first["age"] == 63 and first["cp_4"] == 0 and first["restecg_2"] == 1


def test_heart_disease_with_means_keeps_everybody(real_data):
    found = data.heart_disease(real_data, missing="mean")
    raw = np.load(real_data / "fed_heart_disease" / "heart_disease.npz")
    assert np.bincount(found.center).tolist() == [303, 294, 123, 200]
    assert np.array_equal(found.y, raw["y"] > 0)
    assert np.array_equal(found.center, raw["center"])
    names = list(raw["feature_names"])
    for name in ("age", "trestbps", "chol", "oldpeak"):
        was = raw["x"][:, names.index(name)].astype(float)
        now = found.x[:, found.features.index(name)]
        for i in range(4):
            mine = raw["center"] == i
            expected = np.where(np.isnan(was), np.nanmean(was[mine]), was)
            # The table is float32.
            assert np.allclose(now[mine], expected[mine], rtol=1e-6, atol=1e-6)
    swiss = found.x[found.center == 2, found.features.index("chol")]
    assert np.all(swiss == 0)


@pytest.mark.parametrize("load", [data.heart_disease, data.tcga_brca])
def test_standardised_features_have_mean_0_and_deviation_1(real_data, load):
    raw = load(real_data).x
    x = data.standardise(raw)
    assert np.allclose(x.mean(0), 0, atol=1e-12)
    assert np.allclose(x.std(0), 1, atol=1e-12)
    some = data.standardise(raw, raw[::2])
    assert np.allclose(some[::2].mean(0), 0, atol=1e-12) and abs(some.mean()) > 1e-4


def test_tcga_brca_has_the_patients_of_flamby(real_data):
    found = data.tcga_brca(real_data)
    assert found.x.shape == (1088, 39) and len(found.features) == 39
    assert np.bincount(found.region).tolist() == [311, 196, 206, 162, 162, 51]
    train = np.bincount(found.region[found.train])
    assert train.tolist() == [248, 156, 164, 129, 129, 40]
    assert found.event.sum() == 151 and found.time.min() >= 0
    assert [len(part) for part in data.natural(found.region)][-1] == 51


def test_malformed_patients_are_named(tmp_path):
    (tmp_path / "fed_heart_disease").mkdir()
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        row = ",".join("1" * 14) + "\n"
        text = row + row.replace("1,1", "1,spam", 1) * (name == "switzerland")
        path = tmp_path / "fed_heart_disease" / f"processed.{name}.data"
        path.write_text(text)
    with pytest.raises(ValueError, match="switzerland.data, line 2: must have 14 num"):
        data.heart_disease(tmp_path)
    with pytest.raises(ValueError, match="one of drop, mean; got 'zero'"):
        data.heart_disease(tmp_path, missing="zero")


FOLDS = "pid,fold,fold2\na,train,train_0\nb,test,test_5\n"


@pytest.mark.parametrize(
    "table, folds, message",
    [
        ("pid,age,E,T\na,1,0,9\nb,1,spam,9\n", FOLDS, "brca.csv, line 3: must have 3"),
        ("pid,age,E,T\na,1,0\n", FOLDS, "brca.csv, line 2: .* got '1,0'"),
        ("pid,age,E,T\nc,1,0,9\n", FOLDS, "must hold patients that .* got none"),
        ("", FOLDS, "must hold patients that .* got none"),
        ("pid,age,E,T\n", FOLDS.replace("t_5", "t_6"), "split.csv, line 3: .*test_6"),
        ("pid,age,E,T\n", FOLDS.replace("fold2", "x"), "line 2: .* a fold2 like"),
    ],
)
def test_malformed_regions_are_named(tmp_path, table, folds, message):
    (tmp_path / "fed_tcga_brca").mkdir()
    (tmp_path / "fed_tcga_brca" / "brca.csv").write_text(table)
    (tmp_path / "fed_tcga_brca" / "train_test_split.csv").write_text(folds)
    with pytest.raises(ValueError, match=message):
        data.tcga_brca(tmp_path)


# Phones


def test_phones_are_there_while_idle_charging_and_on_wifi(tmp_path):
    day = "2020-01-29"
    begin = ["screen_off", "battery_charged_on", "wifi"]
    lines = [f"{day} 00:00:00 \t{event}" for event in begin]
    lines += [f"{day} 10:00:00 \tscreen_on", f"{day} 10:40:00 \tscreen_off"]
    lines += [f"2020-02-02 00:00:00 \t{event}" for event in begin]
    good = {"messages": "\n".join(lines)}
    seldom = {"messages": "\n".join(lines[:3] + lines[3:5])}  # known for half a day
    silent = {"messages": f"{day} 00:00:00 \t50.0%"}
    (tmp_path / "flash").mkdir()
    logs = {"0": silent, "1": good, "2": seldom}
    (tmp_path / "flash" / "state_traces.json").write_text(json.dumps(logs))
    table = data.flash_availability(tmp_path)
    assert table.shape == (241, 1) and table.dtype == np.int8
    assert table[:20, 0].tolist() == [1] * 20 and table[20:23, 0].tolist() == [0, 0, 1]
    last = 4 * 48  # the events of the fifth day's begin are the last
    assert table[last, 0] == 1 and (table[last + 1 :] == -1).all()
    assert data.flash_logs(tmp_path) == logs
    (tmp_path / "flash" / "state_traces.json").write_text('{"0": {}}')
    with pytest.raises(ValueError, match="cannot read .*state_traces.json as"):
        data.flash_logs(tmp_path)

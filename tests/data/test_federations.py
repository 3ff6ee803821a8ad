"""Natural federations: small files made here, and the real ones where they are."""

import io
import struct
import wave
import zipfile
import zlib

import numpy as np
import pytest

from focusfl import data
from focusfl.data import speech
from focusfl.data.omniglot import read_png

FILES = [file.path for file in data.DATA_SETS["omniglot"].files]

needs_data = pytest.mark.needs("data")


def lengths(sets):
    return [len(own["y"]) for own in sets]


# Spoken digits


def tone(pitch, seconds=0.5):
    return (8000 * np.sin(2 * np.pi * pitch * np.arange(8000 * seconds) / 8000)).astype(np.int16)


def recordings(folder, takes=(0, 4, 5), **more):
    """Two speakers say 0 and 1, some takes each."""
    every = [(d, who, t) for d in (0, 1) for who in ("b", "a") for t in takes]
    sounds = [tone(300 + 1000 * d, 0.3 + 0.1 * t) for d, _, t in every]
    digit, speaker, take = map(np.array, zip(*every, strict=True))
    whole = {
        "audio": np.concatenate(sounds), "digit": digit, "speaker": speaker,
        "offsets": np.cumsum([0, *map(len, sounds)]), "take": take,
    } | more  # fmt: skip
    (folder / "spoken_digits").mkdir()
    np.savez(folder / "spoken_digits" / "spoken_digits.npz", **whole)


def test_speakers_are_clients_and_their_first_takes_are_for_tests(tmp_path):
    recordings(tmp_path)
    found = data.spoken_digits(tmp_path)
    assert found.names == ("a", "b") and found.classes[:2] == ("zero", "one")
    assert lengths(found.train) == [2, 2] and lengths(found.test) == [4, 4]
    assert found.tests["x"].shape == (8, 32, 24, 1)
    assert np.array_equal(found.tests["y"], [0, 0, 1, 1] * 2)


def test_a_picture_is_loud_where_its_tone_is_and_quiet_after_its_end():
    centres = speech.mel_bands() @ np.fft.rfftfreq(256, 1 / 8000)
    centres /= speech.mel_bands().sum(1)
    high, low = speech.log_mel([tone(2000, 0.3), tone(400, 2.0)])[..., 0]
    for picture, pitch in ((high, 2000), (low, 400)):
        assert np.argmin(abs(centres - pitch)) == picture[5].argmax()
    assert np.allclose(high[16:], np.log(speech.QUIET)) and low[-1].max() > 0


# Omniglot


def png(ink, depth=1):
    """A drawing as a file; ink is black."""
    rows = np.packbits(1 - ink, axis=1)
    content = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    head = struct.pack(">IIBBBBB", *ink.shape[::-1], depth, 0, 0, 0, 0)

    def part(kind, body):
        return struct.pack(">I", len(body)) + kind + body + b"sums"

    parts = part(b"IHDR", head) + part(b"IDAT", content) + part(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def drawing(k):
    ink = np.zeros((105, 105), np.uint8)
    ink[4 : 8 + k, 8:12] = 1
    return ink


def drawings(folder, alphabets=(("Latin", "Greek"), ("Latin", "Tagalog")), drawers=2):
    (folder / "omniglot").mkdir(exist_ok=True)
    for file, own in zip(FILES, alphabets, strict=True):
        with zipfile.ZipFile(folder / file, "w") as archive:
            for name in own:
                for character in range(1, 6):
                    for who in range(1, drawers + 1):
                        path = f"small/{name}/character{character:02}/0001_{who:02}.png"
                        archive.writestr(path, png(drawing(who)))


def test_drawers_are_clients_and_what_is_in_both_archives_counts_once(tmp_path):
    drawings(tmp_path)
    found = data.omniglot(data_dir=tmp_path)
    assert found.names == ("01", "02")
    assert found.classes == ("Greek", "Latin", "Tagalog")
    assert lengths(found.train) == [12, 12] and lengths(found.test) == [3, 3]
    for i, own in enumerate(found.train):
        assert own["x"].shape[1:] == (28, 28, 1)
        expected = np.zeros((28, 28), np.uint8)
        expected[1, 2], expected[2, 2] = 255, 255 * (i + 1) // 4  # rows of four of ink
        assert (own["x"][..., 0] == expected).all()
    characters = data.omniglot("character", data_dir=tmp_path)
    assert len(characters.classes) == 15
    each = np.sort(np.concatenate([characters.train[0]["y"], characters.test[0]["y"]]))
    assert np.array_equal(each, np.arange(15))


@needs_data
def test_drawings_are_read_as_others_read_them():
    image = pytest.importorskip("PIL.Image")
    with zipfile.ZipFile(data.folder() / FILES[0]) as archive:
        name = next(name for name in archive.namelist() if name.endswith("7.png"))
        with archive.open(name) as file:
            theirs = np.asarray(image.open(file))
        assert np.array_equal(read_png(archive.read(name), name) == 0, theirs)


# Shakespeare


def play(folder, text):
    (folder / "shakespeare").mkdir()
    (folder / "shakespeare" / "input.txt").write_text(text)


def test_speakers_are_clients_and_the_end_of_what_they_say_is_for_tests(tmp_path):
    play(
        tmp_path,
        "A:\nabcdef\n\nB:\n" + "xy" * 16 + "\n\nC:\n\nA:\nghijkl: no\n\n\nC:\nx",
    )
    found = data.shakespeare(2, length=4, test_share=0.25, data_dir=tmp_path)
    assert found.names == ("B", "A") and lengths(found.train) == [6, 3]

    def said(sets, key):
        return ["".join(found.classes[k] for k in row) for row in sets[key]]

    assert said(found.train[1], "x") == ["abcd", "ef\ng", "hijk"]
    assert said(found.train[1], "y") == ["bcde", "f\ngh", "ijkl"]
    assert said(found.test[1], "x") == ["l: n"] and lengths(found.test) == [2, 1]


@needs_data
def test_the_real_federations_are_as_large_as_their_docstrings_say():
    spoken = data.spoken_digits()
    assert spoken.names[-1] == "yweweler" and lengths(spoken.train) == [450] * 6
    assert lengths(spoken.test) == [50] * 6
    drawn = data.omniglot()
    assert len(drawn.names) == 20 and len(drawn.classes) == 8
    assert lengths(drawn.train) == [194] * 20 and lengths(drawn.test) == [48] * 20
    assert len(data.shakespeare(99).names) == 99
    assert data.shakespeare(2).names == ("GLOUCESTER", "DUKE VINCENTIO")


# What is damaged or too little


def damaged_zip(folder):
    drawings(folder)
    (folder / FILES[0]).write_bytes(b"no archive")


def other_png(folder):
    drawings(folder)
    with zipfile.ZipFile(folder / FILES[1], "a") as archive:
        archive.writestr("a/Latin/character09/0001_01.png", png(drawing(0), depth=8))


def other_names(folder):
    drawings(folder, alphabets=((), ()))


def test_the_archive_of_recordings_gives_what_our_file_gives(tmp_path):
    for place in ("ours", "theirs"):
        (tmp_path / place).mkdir()
    recordings(tmp_path / "ours")
    (file,) = data.DATA_SETS["spoken_digits"].files
    path = tmp_path / "theirs" / file.path
    path.parent.mkdir()

    def write(rate):
        with (
            np.load(tmp_path / "ours" / "spoken_digits" / "spoken_digits.npz") as own,
            zipfile.ZipFile(path, "w") as archive,
        ):
            sounds = np.split(own["audio"], own["offsets"][1:-1])
            labels = zip(own["digit"], own["speaker"], own["take"], strict=True)
            for sound, (digit, who, take) in zip(sounds, labels, strict=True):
                content = io.BytesIO()
                with wave.open(content, "wb") as out:
                    out.setparams((1, 2, rate, 0, "NONE", ""))
                    out.writeframes(sound.astype("<i2").tobytes())
                name = f"it/recordings/{digit}_{who}_{take}.wav"
                archive.writestr(name, content.getvalue())
            archive.writestr("it/README.md", "not a sound")

    write(speech.RATE)
    theirs = data.spoken_digits(tmp_path / "theirs")
    ours = data.spoken_digits(tmp_path / "ours")
    assert theirs.names == ours.names
    for one, other in zip(theirs.train + theirs.test, ours.train + ours.test, strict=True):
        order = np.argsort(other["y"], kind="stable")
        assert np.array_equal(one["y"], other["y"][order])
        assert np.array_equal(one["x"], other["x"][order])
    write(16_000)
    with pytest.raises(ValueError, match="cannot read .*zip as .* 8000 Hz: .*16000"):
        data.spoken_digits(tmp_path / "theirs")
    path.write_bytes(b"spam")
    with pytest.raises(ValueError, match="cannot read .*focusfl data fetch"):
        data.spoken_digits(tmp_path / "theirs")


BROKEN = {
    "no training": (
        lambda folder: recordings(folder, takes=(0, 1)), data.spoken_digits,
        "every client must have samples for training and for tests; client 'a' has 0",
    ),
    "no take": (
        lambda folder: recordings(folder, take=[0]), data.spoken_digits,
        "with a digit from 0 to 9, a speaker and a take each; got 12, 12 and 1",
    ),
    "no archive": (damaged_zip, data.omniglot, "small1.zip as a zip archive"),
    "another png": (other_png, data.omniglot, "Latin/character09/01 must be a PNG of"),
    "other names": (other_names, data.omniglot, "must hold drawings named like Latin"),
    "nothing said": (
        lambda folder: play(folder, "words"), data.shakespeare, "must hold turns",
    ),
    "few speakers": (
        lambda folder: play(folder, "A:\nwell"), data.shakespeare,
        "num_clients must not exceed the speakers there are, 1; got 30",
    ),
    "a word": (
        lambda folder: play(folder, "A:\nwell"),
        lambda data_dir: data.shakespeare(1, data_dir=data_dir),
        "client 'A' has 0 and 0. Use fewer clients, a shorter length",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make, load, message", BROKEN.values(), ids=list(BROKEN))
def test_what_is_damaged_or_too_little_is_said(make, load, message, tmp_path):
    make(tmp_path)
    with pytest.raises(ValueError) as caught:
        load(data_dir=tmp_path)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# Columns of others' tables


def columns(n=20):
    who = np.array(["ann", "bob"])[np.arange(n) % 2]
    return {"who": who.tolist(), "pixels": np.arange(2.0 * n).reshape(n, 2), "kind":
            [["cat", "dog", "cow"][k % 3] for k in range(n)]}  # fmt: skip


def made_dict(columns):
    return columns


def made_pandas(columns):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({**columns, "pixels": list(columns["pixels"])})


def made_datasets(columns):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({**columns, "pixels": columns["pixels"].tolist()})


@pytest.mark.parametrize("made", [made_dict, made_pandas, made_datasets])
def test_a_column_says_who_the_clients_are(made):
    found = data.from_datasets(made(columns()), "who", "pixels", "kind", tests=0.3)
    assert found.names == ("ann", "bob") and found.classes == ("cat", "cow", "dog")
    assert lengths(found.train) == [7, 7] and lengths(found.test) == [3, 3]
    for i, both in enumerate(zip(found.train, found.test, strict=True)):
        x, y = (np.concatenate([own[k] for own in both]) for k in "xy")
        rows = (x[:, 0] / 2).astype(int)
        assert x.dtype == np.float32 and sorted(rows) == list(range(i, 20, 2))
        assert np.array_equal(y, np.array([0, 2, 1])[rows % 3])


def test_numbers_name_clients_labels_keep_their_meaning_and_images_are_bytes():
    datasets, _ = pytest.importorskip("datasets"), pytest.importorskip("PIL")
    features = datasets.Features({
        "writer": datasets.Value("int64"), "y": datasets.ClassLabel(names=["a", "b"]),
        "x": datasets.Image(),
    })  # fmt: skip
    rows = {
        "writer": [7, 7, 40, 40, 9],
        "y": [1, 0, 0, 0, 0],
        "x": [np.full((2, 3), k, np.uint8) for k in range(5)],
    }
    table = datasets.Dataset.from_dict(rows, features)
    found = data.from_datasets(table, "writer", tests=0.5, least=2)
    assert found.names == ("7", "40") and found.classes == ("a", "b")
    assert found.train[0]["x"].shape == (1, 2, 3)
    assert found.tests["x"].dtype == np.uint8 and found.tests["x"].max() in (2, 3)
    tests = table.filter(lambda row: row["writer"] == 7)
    found = data.from_datasets(table.select([0, 1]), "writer", tests=tests)
    assert lengths(found.train) == lengths(found.test) == [2]


def changed(**columns_):
    return {**columns(), **columns_}


REFUSED = {
    "column": (columns(), {"by": "hwo"}, "unknown column of dataset: 'hwo'. Did you"),
    "no samples": (changed(who=[], pixels=[], kind=[]), {}, "must have samples; got"),
    "one sample": (
        changed(who=["ann", *["bob"] * 19]), {},
        "client 'ann' has 1 and 0. Use another share for tests, or `least`",
    ),
    "rows": (changed(kind=["cat"]), {}, "equally many rows; got 20 in 'who'"),
    "a hole": (changed(who=["ann", None] * 10), {}, "must say whose a sample is"),
    "not a number": (changed(who=["a", np.nan] * 10), {}, "must say whose a sample is"),
    "ragged": (changed(pixels=[[1], [2, 3]] * 10), {}, "dataset: x must be an array"),
    "labels": (changed(kind=[0.5] * 20), {}, "dataset: y must be whole numbers"),
    "least": (columns(), {"least": 11}, "the largest of 2 has 10 samples"),
    "tests": (
        columns(), {"tests": changed(pixels=np.ones((20, 3)))}, "of shape (2,); got",
    ),
    "stranger": (
        columns(), {"tests": changed(who=["ann", "cyd"] * 10)}, "got client 'cyd'",
    ),
    "away": (
        columns(), {"tests": changed(who=["ann"] * 20)},
        "client 'bob' has 10 and 0. Use `least`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("table, how, message", REFUSED.values(), ids=list(REFUSED))
def test_tables_that_do_not_fit_are_refused(table, how, message):
    how = {"by": "who", "x": "pixels", "y": "kind"} | how
    with pytest.raises(ValueError) as caught:
        data.from_datasets(table, **how)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_one_split_is_asked_for():
    datasets = pytest.importorskip("datasets")
    splits = datasets.DatasetDict(train=made_datasets(columns()))
    with pytest.raises(ValueError, match="with named columns: one of train; got Dat"):
        data.from_datasets(splits, "who")
    holes = made_datasets(changed(who=["ann", None] * 10))
    with pytest.raises(ValueError, match="must say whose a sample is"):
        data.from_datasets(holes, "who", "pixels", "kind")

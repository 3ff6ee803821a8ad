"""Spoken digits. Jackson et al., Free Spoken Digit Dataset, CC BY-SA 4.0.

https://github.com/Jakobovski/free-spoken-digit-dataset
"""

import io
import re
import wave
import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped

from focusfl.data.federations import Federation, federation
from focusfl.data.places import Place, find
from focusfl.data.samples import Samples, unpacked

NAME = re.compile(r"recordings/(\d)_([^/_]+)_(\d+)\.wav$")  # digit, speaker, take
RATE = 8000  # samples of sound in a second
FRAMES, BANDS = 32, 24  # of a picture: times and pitches
HOP, WINDOW = 160, 256  # samples of sound: 20 and 32 milliseconds
TEST_TAKES = 5  # the usual test set: the first recordings of each digit
QUIET = 1e-6  # power that counts as silence
WORDS = "zero one two three four five six seven eight nine".split()

Sound = Shaped[np.ndarray, "_"]  # noqa: F821
Recordings = tuple[list[Sound], np.ndarray, np.ndarray, np.ndarray]  # digit, who, take


def spoken_digits(data_dir: Place = None) -> Federation:
    """Load 3,000 recordings of ten digits by six speakers, one client each.

    A recording is a log-mel picture, (32, 24, 1): 32 frames of 20 milliseconds, 24
    bands. What is longer is cut off, what is shorter is silent at its end. The first
    five takes of each digit are for tests, as usual: 50 for each speaker, beside 450.

    Raises:
        ValueError: If data are missing or damaged.
    """
    (path,) = find("spoken_digits", data_dir)
    if path.suffix == ".zip":
        sounds, digit, speaker, take = _read(path)
    else:
        sounds, digit, speaker, take = _unpack(path)
    names, client = np.unique(speaker, return_inverse=True)
    samples = Samples(log_mel(sounds), digit.astype(np.int32), client)
    return federation(samples, take < TEST_TAKES, names.tolist(), WORDS)


def _read(path: Path) -> Recordings:
    """Read the recordings of an archive of the repository, in the order of their names."""
    sounds, labels = [], []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if match := NAME.search(name):
                    with wave.open(io.BytesIO(archive.read(name))) as sound:
                        kind = sound.getparams()[:3]
                        if kind != (1, 2, RATE):
                            raise wave.Error(f"{name} has {kind} channels, bytes, Hz")
                        frames = sound.readframes(sound.getnframes())
                    sounds.append(np.frombuffer(frames, "<i2"))
                    labels.append(match.groups())
    except Exception as error:  # a damaged archive can make a reader raise anything
        raise ValueError(
            f"cannot read {path} as an archive of sounds of 16 bits at {RATE} Hz: "
            f"{error}. Fetch it again: focusfl data fetch spoken_digits."
        ) from None
    if not sounds:
        raise ValueError(
            f"{path} must hold sounds named like recordings/7_jackson_32.wav; got none."
        )
    digit, speaker, take = np.array(labels).T
    return sounds, digit.astype(int), speaker, take.astype(int)


def _unpack(path: Path) -> Recordings:
    """Read the recordings of an .npz file that has all of them in one array."""
    parts = unpacked(path, ("audio", "offsets", "digit", "speaker", "take"))
    audio, offsets, digit, speaker, take = parts
    ends = offsets[1:]
    if (
        not len(digit) == len(speaker) == len(take) == len(ends)
        or not np.all(np.diff(offsets) > 0)
        or ends.max(initial=0) > len(audio)
        or not np.isin(digit, range(10)).all()
    ):
        raise ValueError(
            f"{path} must hold sounds one behind the other, with a digit from 0 to 9, "
            f"a speaker and a take each; got {len(digit)}, {len(speaker)} and "
            f"{len(take)} for {len(ends)} sounds."
        )
    sounds = [audio[a:b] for a, b in zip(offsets, ends, strict=False)]
    return sounds, digit, speaker, take


def log_mel(sounds: list[Sound]) -> Float[np.ndarray, "sounds frames bands 1"]:
    """Compute log-mel pictures of sounds of 16 bits: log power by frame and band."""
    length = (FRAMES - 1) * HOP + WINDOW
    padded = np.zeros((len(sounds), length), np.float32)
    for row, sound in zip(padded, sounds, strict=True):
        row[: len(sound)] = sound[:length]
    starts = np.arange(FRAMES)[:, None] * HOP + np.arange(WINDOW)
    window = np.hanning(WINDOW).astype(np.float32)
    bands, pictures = mel_bands().T.astype(np.float32), []
    for some in np.array_split(padded, -(-len(padded) // 500) or 1):  # in little memory
        spectrum = np.fft.rfft(some[:, starts] / 2**15 * window)
        pictures.append(np.log(np.abs(spectrum) ** 2 @ bands + QUIET))
    return np.concatenate(pictures)[..., None].astype(np.float32)


def mel_bands() -> Float[np.ndarray, "bands pitches"]:
    """Return the weight of each frequency in each band: triangles, evenly spaced in mel."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, top, BANDS + 2) / 2595) - 1)
    pitches = np.fft.rfftfreq(WINDOW, 1 / RATE)
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = ((pitches - low) / (middle - low), (high - pitches) / (high - middle))
    return np.maximum(0, np.minimum(rising, falling))

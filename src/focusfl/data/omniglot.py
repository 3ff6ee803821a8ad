"""Omniglot, handwritten characters. Lake, Salakhutdinov and Tenenbaum 2015.

https://github.com/brendenlake/omniglot
"""

import re
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from focusfl.core.validation import check_count, check_one_of, check_share
from focusfl.data.federations import Federation, federation
from focusfl.data.partition import hold_out
from focusfl.data.places import Place, find
from focusfl.data.samples import Samples

TASKS = ("alphabet", "character")
SIZE, SHRINK = 105, 4  # pixels of a drawing, either way; how many become one
MARGIN = 7  # pixels of paper, right and below
NAME = re.compile(r"([^/]+)/(character\d+)/\d+_(\d+)\.png$")

Drawing = UInt8[np.ndarray, "height width"]
Named = dict[tuple[str, ...], Drawing]  # by alphabet, character and drawer


def omniglot(
    task: str = "alphabet", test_share: float | int = 0.2, seed: int = 0, data_dir: Place = None
) -> Federation:
    """Load 4,840 drawings of 242 characters, one client for each of 20 drawers.

    Of the two small background sets, whose Latin and Greek are the same: 8 alphabets.
    Every drawer has drawn every character once. The number in a file's name says who
    drew it; whether number 7 is one person in all alphabets, the data do not say.
    Drawings, ink on paper, are (28, 28, 1) bytes: the share of ink, up to 255.

    Args:
        task: what to predict: the "alphabet" of a drawing, or the "character". A drawer has
            drawn each character once: those in its tests only others train on.
        test_share: share of every drawer's characters that is for tests.
        seed: of which characters those are.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.

    Raises:
        ValueError: If data are missing or damaged, or an argument is out of its range.
    """
    check_one_of("task", task, TASKS)
    check_share("test_share", test_share, whole=False)
    check_count("seed", seed, least=0)
    drawings: Named = {}
    for path in find("omniglot", data_dir):
        drawings |= _read(path)
    keys = sorted(drawings)
    x = _small(np.stack([drawings[key] for key in keys]))
    alphabets, characters, drawers = np.array(keys).T
    names, client = np.unique(drawers, return_inverse=True)
    what = np.char.add(np.char.add(alphabets, "/"), characters)
    kinds = alphabets if task == "alphabet" else what
    classes, y = np.unique(kinds, return_inverse=True)
    samples = Samples(x, y.astype(np.int32), client)
    is_test = hold_out(client, test_share, seed)
    advice = "Use another test_share."
    return federation(samples, is_test, names.tolist(), classes.tolist(), advice)


def _read(path: Path) -> Named:
    """Read the drawings of an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = {
                match.groups(): archive.read(name)
                for name in archive.namelist()
                if (match := NAME.search(name))
            }
    except Exception as error:  # a damaged archive can make a reader raise anything
        raise ValueError(f"cannot read {path} as a zip archive: {error}.") from None
    if not found:
        raise ValueError(
            f"{path} must hold drawings named like Latin/character01/0394_01.png; got "
            "none. Fetch it again."
        )
    where = {key: f"{path}, {'/'.join(key)}" for key in found}
    return {key: read_png(content, where[key]) for key, content in found.items()}


def read_png(content: bytes, where: str) -> Drawing:
    """Read a PNG of Omniglot, 105 x 105 pixels of one bit, as an array in which 1 is ink.

    Raises:
        ValueError: If it is damaged, or another kind of PNG.
    """
    header, packed, at = b"", b"", 8
    while content[:8] == b"\x89PNG\r\n\x1a\n" and at < len(content) - 11:
        size, kind = struct.unpack_from(">I4s", content, at)
        body = content[at + 8 : at + 8 + size]
        header += body * (kind == b"IHDR")
        packed += body * (kind == b"IDAT")
        at += 12 + size
    # Bits, colours, compression, filter, interlacing: one bit of grey, the plain way.
    plain = struct.pack(">IIBBBBB", SIZE, SIZE, 1, 0, 0, 0, 0)
    wide = 1 + -(-SIZE // 8)  # the first byte of a row says how it is filtered
    try:
        rows = np.frombuffer(zlib.decompress(packed), np.uint8)
    except zlib.error:
        rows = np.zeros(0, np.uint8)
    if header != plain or rows.size != SIZE * wide or rows[::wide].any():
        raise ValueError(
            f"{where} must be a PNG of {SIZE} x {SIZE} pixels, one bit each, neither "
            "filtered nor interlaced; got another, or a damaged one."
        )
    bits = np.unpackbits(rows.reshape(SIZE, wide)[:, 1:], axis=1)[:, :SIZE]
    return 1 - bits


def _small(drawings: np.ndarray) -> np.ndarray:
    """Shrink 4 x 4 pixels to one: the share of ink, from 0 to 255."""
    paper = np.pad(drawings, ((0, 0), (0, MARGIN), (0, MARGIN)))
    side = paper.shape[1] // SHRINK
    blocks = paper.reshape(-1, side, SHRINK, side, SHRINK)
    ink = blocks.sum((2, 4), dtype=np.uint16) * 255 // SHRINK**2
    return ink[..., None].astype(np.uint8)

"""Sets of images: CIFAR-10, MNIST and Fashion-MNIST.

Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html; LeCun, Cortes and Burges 1998; Xiao,
Rasul and Vollgraf 2017.
"""

import gzip
import math
import struct
import tarfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from focusfl.data.fetching import mismatch
from focusfl.data.places import Place, find
from focusfl.data.registry import entry
from focusfl.data.samples import unpacked

BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
CLASSES = 10
Part = tuple[np.ndarray, np.ndarray]  # images and labels


class Images(NamedTuple):
    """Images for training and for tests, bytes, with labels from 0 to 9."""

    train_x: UInt8[np.ndarray, "train height width channels"]
    train_y: Int[np.ndarray, " train"]
    test_x: UInt8[np.ndarray, "test height width channels"]
    test_y: Int[np.ndarray, " test"]


def cifar10(data_dir: Place = None) -> Images:
    """Load CIFAR-10, 50,000 and 10,000 images of 32 x 32 pixels, in the original order.

    From the published binary archive, whose checksum must hold, or from cifar10/train_1.npz, ...,
    test.npz with the same content.

    Raises:
        ValueError: If the files cannot be had, or are damaged.
    """
    paths = find("cifar10", data_dir)
    parts = _read_archive(paths[0]) if len(paths) == 1 else _read_parts(paths)
    for where, (x, y) in parts.items():
        if x.shape != (len(x), 3, 32, 32) or x.dtype != np.uint8 or y.shape != (len(x),):
            raise ValueError(
                f"{where}: x must be (images, 3, 32, 32) of uint8 and y one label each; got "
                f"{x.shape} of {x.dtype} and {y.shape}."
            )
        if np.any((y < 0) | (y >= CLASSES)):
            raise ValueError(
                f"{where}: labels must lie in 0..{CLASSES - 1}; got "
                f"{y.min()}..{y.max()}. Fetch the data again."
            )
    *train, test = parts.values()
    return Images(*_joined(train), *_joined([test]))


def mnist(data_dir: Place = None) -> Images:
    """Load MNIST: 60,000 and 10,000 handwritten digits, (28, 28, 1) bytes each.

    Raises:
        ValueError: If the files cannot be had, or are damaged.
    """
    return _load_idx("mnist", data_dir)


def fashion_mnist(data_dir: Place = None) -> Images:
    """Load Fashion-MNIST: 60,000 and 10,000 pictures of clothes, as those of MNIST.

    Raises:
        ValueError: If the files cannot be had, or are damaged.
    """
    return _load_idx("fashion_mnist", data_dir)


def _joined(parts: list[Part]) -> Part:
    """Join batches of CIFAR-10, with the channels of images as the last axis."""
    x, y = map(np.concatenate, zip(*parts, strict=True))
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y.astype(np.int32)


def _read_parts(paths: list[Path]) -> dict[str, Part]:
    """Read images and labels of each .npz file, by its name."""
    parts = {}
    for path in paths:
        x, y = unpacked(path, ("x", "y"))
        parts[str(path)] = x, y
    return parts


def _read_archive(path: Path) -> dict[str, Part]:
    """Read images and labels of each batch in the binary archive, by its name."""
    if wrong := mismatch(path, entry("cifar10").files[0].checksum):
        raise ValueError(
            f"{path} is damaged: {wrong}. Remove it, and fetch it again: focusfl data fetch "
            "cifar10."
        )
    contents = {}
    with tarfile.open(path) as archive:
        # Read, never unpacked to disk: names in an archive can point anywhere.
        for member in archive:
            if file := archive.extractfile(member):  # not a folder
                contents[Path(member.name).name] = file.read()
    if absent := [batch for batch in BATCHES if batch not in contents]:
        raise ValueError(f"{path} must hold {', '.join(BATCHES)}; {', '.join(absent)} is missing.")
    parts, record = {}, 1 + 3 * 32 * 32  # bytes of an image: its label, red, green and blue
    for batch in BATCHES:
        where, content = f"{path}, {batch}", contents[batch]
        if not content or len(content) % record:
            raise ValueError(
                f"{where}: must have {record} bytes per image; got {len(content)} in all."
            )
        rows = np.frombuffer(content, np.uint8).reshape(-1, record)
        parts[where] = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]
    return parts


def _load_idx(name: str, data_dir: Place) -> Images:
    """Load a data set of four idx files: images and labels for training, and for tests."""
    train_x, train_y, test_x, test_y = (_read_idx(path) for path in find(name, data_dir))
    for x, y in ((train_x, train_y), (test_x, test_y)):
        if x.ndim != 3 or y.shape != x.shape[:1] or y.max(initial=0) >= CLASSES:
            raise ValueError(
                f"{name}: images must be (images, height, width), with a label below "
                f"{CLASSES} each; got shapes {x.shape} and {y.shape}."
            )
    return Images(
        train_x[..., None], train_y.astype(np.int32),
        test_x[..., None], test_y.astype(np.int32),
    )  # fmt: skip


def _read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """Read a gzip-compressed idx file of bytes, in the shape that it states."""
    try:
        content = gzip.decompress(path.read_bytes())
        kind, dims = struct.unpack_from(">HBB", content)[1:]
        shape = struct.unpack_from(f">{dims}I", content, 4)
    except (OSError, EOFError, struct.error, zlib.error) as error:
        raise ValueError(f"cannot read {path} as an idx file: {error}.") from None
    body = np.frombuffer(content, np.uint8, offset=4 + 4 * dims)
    if kind != 8 or len(body) != math.prod(shape):
        raise ValueError(
            f"{path} must be an idx file of bytes of shape {shape}; got kind {kind}, "
            f"{len(body)} bytes."
        )
    return body.reshape(shape)

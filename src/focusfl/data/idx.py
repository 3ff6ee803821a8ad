"""MNIST, and Fashion-MNIST, which comes in the same files.

LeCun, Cortes and Burges 1998; Xiao, Rasul and Vollgraf 2017.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from focusfl.data.cifar import Images
from focusfl.data.places import Place, find

CLASSES = 10


def mnist(data_dir: Place = None) -> Images:
    """Load MNIST: 60,000 and 10,000 handwritten digits, (28, 28, 1) bytes each.

    Raises:
        ValueError: If the files cannot be had, or are damaged.
    """
    return _load("mnist", data_dir)


def fashion_mnist(data_dir: Place = None) -> Images:
    """Load Fashion-MNIST: 60,000 and 10,000 pictures of clothes, as those of MNIST.

    Raises:
        ValueError: If the files cannot be had, or are damaged.
    """
    return _load("fashion_mnist", data_dir)


def read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """Read a gzip-compressed idx file of bytes, in the shape that it states.

    Raises:
        ValueError: If it is another kind of file, or damaged.
    """
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


def _load(name: str, data_dir: Place) -> Images:
    found = [read_idx(path) for path in find(name, data_dir)]
    for x, y in (found[:2], found[2:]):
        if x.ndim != 3 or y.shape != x.shape[:1] or y.max(initial=0) >= CLASSES:
            raise ValueError(
                f"{name}: images must be (images, height, width), with a label below "
                f"{CLASSES} each; got shapes {x.shape} and {y.shape}."
            )
    train_x, train_y, test_x, test_y = found
    return Images(
        train_x[..., None], train_y.astype(np.int32),
        test_x[..., None], test_y.astype(np.int32),
    )  # fmt: skip

"""CIFAR-10. Krizhevsky 2009. https://www.cs.toronto.edu/~kriz/cifar.html"""

import hashlib
import io
import lzma
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Int, UInt8

from focusfl.core.files import renamed
from focusfl.data.places import Place, cache_folder, find

BINARY = "cifar-10-binary.tar.gz"
PYTHON = "cifar-10-python.tar.gz"
MD5 = {  # published next to the archives
    BINARY: "c32a1d4ab5d03f1284b67883e8d87530",
    PYTHON: "c58f30108f718f92721af3b95e74349a",
}
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
CLASSES = 10


class Images(NamedTuple):
    train_x: UInt8[np.ndarray, "train height width channels"]
    train_y: Int[np.ndarray, " train"]
    test_x: UInt8[np.ndarray, "test height width channels"]
    test_y: Int[np.ndarray, " test"]


def cifar10(data_dir: Place = None) -> Images:
    """Load CIFAR-10, 50,000 and 10,000 images, in the original order.

    From cifar10/train_1.npz, ..., test.npz or one of the published archives, whose
    checksums must hold. The first time unpacks them into the cache folder; from then on
    images are mapped from there, read-only, and cost no memory until they are used.
    """
    paths = find("cifar10", data_dir)
    copy = cache_folder() / f"cifar10-{_fingerprint(paths)}"
    if not copy.is_dir():
        images = _read(paths)
        try:
            _save(copy, images)
        except OSError:  # full or read-only: what was read is as good, but for the time
            return images
    return Images(*(np.load(copy / f"{x}.npy", mmap_mode="r") for x in Images._fields))


def _read(paths):
    if len(paths) > 1:
        parts = {str(path): _read_npz(path) for path in paths}
    else:
        parts = _read_archive(paths[0])
    for where, (_, y) in parts.items():
        if np.any((y < 0) | (y >= CLASSES)):
            raise ValueError(
                f"{where}: labels must lie in 0..{CLASSES - 1}; got "
                f"{y.min()}..{y.max()}. Fetch the data again."
            )
    x, y = zip(
        *((_channels_last(x), y.astype(np.int32)) for x, y in parts.values()),
        strict=True,
    )
    return Images(np.concatenate(x[:-1]), np.concatenate(y[:-1]), x[-1], y[-1])


_UNREADABLE = (
    *(OSError, EOFError, KeyError, TypeError, ValueError),
    *(BadZipFile, lzma.LZMAError, zlib.error),
)


def _read_npz(path):
    try:
        with np.load(path) as file:
            x, y = file["x"], file["y"]
    except _UNREADABLE as error:
        raise ValueError(
            f"cannot read {path} as an .npz file that holds x and y: {error}."
        ) from None
    if x.shape != (len(x), 3, 32, 32) or x.dtype != np.uint8 or y.shape != (len(x),):
        raise ValueError(
            f"{path}: x must be (images, 3, 32, 32) of uint8 and y one label each; got "
            f"{x.shape} of {x.dtype} and {y.shape}."
        )
    return x, y


def _read_archive(path):
    _check_md5(path, path.name, path)
    decode, suffix = (_decode_binary, ".bin") if path.name == BINARY else (_decode_python, "")
    files = {}
    with tarfile.open(path) as archive:
        # Read, never unpacked to disk: names in an archive can point anywhere.
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:  # not a folder
                files[Path(member.name).name] = file.read()
    absent = [batch + suffix for batch in BATCHES if batch + suffix not in files]
    if absent:
        raise ValueError(
            f"{path} must hold {', '.join(b + suffix for b in BATCHES)}; "
            f"{', '.join(absent)} is missing."
        )
    named = {f"{path}, {batch}": files[batch + suffix] for batch in BATCHES}
    return {where: decode(content, where) for where, content in named.items()}


def _decode_binary(content, where):
    record = 1 + 3 * 32 * 32
    if not content or len(content) % record:
        raise ValueError(f"{where}: must have {record} bytes per image; got {len(content)} in all.")
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def _decode_python(content, where):
    try:
        batch = _Arrays(io.BytesIO(content), encoding="bytes").load()
        x, y = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
        return x.reshape(len(y), 3, 32, 32), y
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: must hold data and labels; {error}. Use {BINARY} instead."
        ) from None


class _Arrays(pickle.Unpickler):
    """Unpickle plain containers and numpy arrays; a pickle can name any function."""

    def find_class(self, module, name):
        module = module.replace("numpy._core", "numpy.core")  # renamed in numpy 2
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"{module}.{name} is not admitted")
        return _ADMITTED[module, name]


def _dtype(code, align=False, copy=False):
    return np.dtype(code, bool(align), bool(copy))  # old pickles have 0 and 1


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
}


def _check_md5(path, name, called):
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, _md5).hexdigest()
    if found != MD5[name]:
        raise ValueError(
            f"{called} is damaged: its MD5 must be {MD5[name]}; got {found}. "
            "Remove it, and fetch it again: focusfl data fetch cifar10."
        )


def _md5(content=b""):
    return hashlib.md5(content, usedforsecurity=False)  # it guards against accidents


def _channels_last(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def _fingerprint(paths):
    stats = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in paths]
    return _md5(repr(stats).encode()).hexdigest()[:12]


def _save(copy, images):
    with renamed(copy, folder=True) as part:
        for name, array in images._asdict().items():
            np.save(part / f"{name}.npy", array)

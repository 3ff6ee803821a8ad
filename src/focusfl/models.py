"""Models on disk, as safetensors: names, shapes and bytes, and nothing that runs.

https://github.com/huggingface/safetensors#format. PyTorch, Flax and every other reader
of the format get flat names joined by dots; `load_model` gives the nested model back.
"""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from focusfl.core import files
from focusfl.core.tree import Tree

ALONE = "model"  # the name of a model that is one array
# Among the metadata: where each tensor is in the model, and a checksum of the file.
PATHS, SEAL = "focusfl.paths", "focusfl.seal"
ALIGNED = 8  # bytes that the tensors begin at a multiple of
LONGEST = 100 << 20  # bytes of a header, as other readers have it

DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16",
    "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip
_NAMES = {code: name for name, code in DTYPES.items()}


def save_model(path: str | Path, model: Tree, about: Mapping[str, str] = {}) -> Path:
    """Write a model, nested dicts of arrays or one array; `about` goes beside it.

    The file is there whole or not at all. Raises ValueError for what is no model.
    """
    path = Path(path)
    leaves = {name: (where, np.asarray(leaf)) for name, where, leaf in _walk(model)}
    header: dict[str, Any] = {
        "__metadata__": {
            **about,
            PATHS: json.dumps({name: where for name, (where, _) in leaves.items()}),
            SEAL: files.BLANK,
        }
    }
    end = 0
    for name, (_, leaf) in leaves.items():
        if leaf.dtype.name not in DTYPES:
            raise ValueError(f"{name} cannot be saved: its dtype is {leaf.dtype}.")
        begin, end = end, end + leaf.nbytes
        header[name] = {
            "dtype": DTYPES[leaf.dtype.name],
            "shape": list(leaf.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNED)
    with files.renamed(path, sealed=True) as part, open(part, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, leaf in leaves.values():
            little = leaf.astype(leaf.dtype.newbyteorder("<"), copy=False)
            file.write(np.ascontiguousarray(little).tobytes())
    return path


def read_model(path: str | Path, seal: str | None = None) -> Tree:
    """Read a model from a safetensors file, whoever wrote it.

    Raises ValueError if the file is not one, or is damaged, or if it is not the one
    with a checksum that is given.
    """
    return read_with_about(path, seal)[0]


def seal_of(path: Path) -> str:
    """The checksum that a model says, without comparing it."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, LONGEST)))
    return header["__metadata__"][SEAL].removeprefix(files.SEAL)


def read_with_about(path: str | Path, seal: str | None = None) -> tuple[Tree, dict[str, str]]:
    """Read a model and what was written beside it."""
    try:
        whole, found = files.read(Path(path))
        files.check_seal(Path(path), found, seal)
        length = int.from_bytes(whole[:8], "little")
        if not 2 <= length <= min(LONGEST, len(whole) - 8):
            raise ValueError(f"its header cannot be {length} bytes long")
        header = json.loads(whole[8 : 8 + length])
        about = header.pop("__metadata__", {})
        if (SEAL in about) != (found is not None):
            raise files.Damaged(f"{path} is damaged: its checksum is gone")
        if about.pop(SEAL, None) is None and PATHS in about:
            print(f"{path} {files.UNSEALED}", file=sys.stderr)
        paths = json.loads(about.pop(PATHS)) if PATHS in about else {}
        body, model = whole[8 + length :], dict[str, Any]()
        if sum(_size(tensor) for tensor in header.values()) != len(body):
            raise ValueError("it is not as long as its tensors")
        for name, tensor in header.items():
            where = paths.get(name, name.split("."))
            if not where:
                return _tensor(tensor, body), about
            inner = model
            for part in where[:-1]:
                inner = inner.setdefault(part, {})
            inner[where[-1]] = _tensor(tensor, body)
        return model, about
    except OSError:
        raise
    except files.Damaged as error:
        if seal is not None:  # whoever knows where it is from says what would do
            raise
        raise files.Damaged(f"{error}. Use a copy, or save it again.") from None
    except Exception as error:  # a damaged file can make a reader say anything
        raise ValueError(f"{path} is not a safetensors file, or it is damaged ({error}).") from None


def _walk(model: Tree, where: tuple[str, ...] = ()) -> list[tuple[str, list[str], Any]]:
    """Every leaf with its name and its path; names are told apart if paths are."""
    found: list[tuple[tuple[str, ...], Any]] = []

    def visit(part: Tree, where: tuple[str, ...]) -> None:
        if isinstance(part, Mapping):
            for name in part:
                if not isinstance(name, str):
                    raise ValueError(f"a model's names must be text; got {name!r}.")
                visit(part[name], (*where, name))
        else:
            found.append((where, part))

    visit(model, where)
    names = [".".join(path) or ALONE for path, _ in found]
    for glue in ("/", "\0"):  # {"a.b": …} beside {"a": {"b": …}}
        if len(set(names)) == len(names):
            break
        names = [glue.join(path) for path, _ in found]
    return [(name, list(path), leaf) for name, (path, leaf) in zip(names, found, strict=True)]


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name).newbyteorder("<")


def _size(tensor: Mapping[str, Any]) -> int:
    width = _dtype(_NAMES[tensor["dtype"]]).itemsize
    begin, end = tensor["data_offsets"]
    if end - begin != math.prod(tensor["shape"]) * width or begin < 0:
        raise ValueError("a tensor has another size than its shape")
    return end - begin


def _tensor(tensor: Mapping[str, Any], body: bytes) -> np.ndarray:
    dtype = _dtype(_NAMES[tensor["dtype"]])
    begin, end = tensor["data_offsets"]
    array = np.frombuffer(body[begin:end], dtype).reshape(tensor["shape"])
    return array.astype(dtype.newbyteorder("="))

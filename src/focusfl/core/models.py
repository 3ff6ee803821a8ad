"""Read and write models as safetensors: names, shapes and bytes, and nothing that runs.

https://github.com/huggingface/safetensors. PyTorch, Flax and every other reader of the
format get flat names joined by dots; `read_model` gives the nested model back.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from focusfl.core import files
from focusfl.core.tree import Tree

WHOLE_MODEL = "model"  # the name of a model that is a single array
# One entry of the metadata holds all of ours, as safetensors writes several in any order
# and the same model must give the same bytes.
METADATA = "focusfl"


def save_model(path: str | Path, model: Tree, about: Mapping[str, str] = {}) -> Path:
    """Write a model to a file that is there whole or not at all.

    Args:
        path: of the file.
        model: nested dicts of arrays, or one array.
        about: texts to write beside it.

    Raises:
        ValueError: If it is no model: a name is no text, or an array has no numbers.
    """
    path, leaves = Path(path), _leaves(model)
    paths = {name: where for name, (where, _) in leaves.items()}
    metadata = {"about": dict(about), "paths": paths, "seal": files.BLANK}
    arrays = {name: np.asarray(leaf, order="C") for name, (_, leaf) in leaves.items()}
    try:
        content = save(arrays, {METADATA: json.dumps(metadata)})
    except SafetensorError as error:
        raise ValueError(f"this model cannot be saved: {error}.") from None
    return files.write(path, content, sealed=True)


def read_model(path: str | Path) -> Tree:
    """Read a model from a safetensors file, whoever wrote it.

    Args:
        path: of the file.

    Raises:
        ValueError: If it is no safetensors file, or is damaged.
    """
    return read_with_about(path)[0]


def read_with_about(path: str | Path) -> tuple[Tree, dict[str, str]]:
    """Read a model, and the texts that were written beside it."""
    path = Path(path)
    try:
        _, stated = files.read(path)
        with safe_open(path, "numpy") as file:
            metadata = _metadata(file)
            if ("seal" in metadata) != (stated is not None):
                raise files.Damaged(f"{path} is damaged: its checksum is gone")
            paths = metadata.get("paths", {})
            leaves = {name: file.get_tensor(name) for name in file.keys()}
        return _nested({tuple(paths.get(n, n.split("."))): a for n, a in leaves.items()}), (
            metadata.get("about", {})
        )
    except files.Damaged as error:
        raise files.Damaged(f"{error}. Use a copy, or save it again.") from None
    except (SafetensorError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a safetensors file, or it is damaged ({error}).") from None


def _metadata(file: Any) -> dict[str, Any]:
    return files.parse_json((file.metadata() or {}).get(METADATA, "{}"))


def _leaves(model: Tree) -> dict[str, tuple[list[str], Any]]:
    """Name every leaf of a model; give its path beside it."""
    leaves: list[tuple[list[str], Any]] = []

    def visit(part: Tree, where: list[str]) -> None:
        if not isinstance(part, Mapping):
            leaves.append((where, part))
            return
        for name, inner in part.items():
            if not isinstance(name, str):
                raise ValueError(f"a model's names must be text; got {name!r}.")
            visit(inner, [*where, name])

    visit(model, [])
    for glue in (".", "/", "\0"):  # {"a.b": …} beside {"a": {"b": …}} needs another one
        named = {glue.join(where) or WHOLE_MODEL: (where, leaf) for where, leaf in leaves}
        if len(named) == len(leaves):
            break
    return named


def _nested(leaves: Mapping[tuple[str, ...], Any]) -> Tree:
    """Build the nested dicts of leaves by path; the one leaf of an empty path alone."""
    model: dict[str, Any] = {}
    for (*above, name), leaf in ((path, leaf) for path, leaf in leaves.items() if path):
        inner = model
        for part in above:
            inner = inner.setdefault(part, {})
        inner[name] = leaf
    return leaves.get((), model)

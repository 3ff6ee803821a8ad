"""A message as bytes: one header in JSON and one entry of raw bytes per leaf.

Whatever comes in is checked before it is used, and nothing is ever unpickled. A header
is `checksum newline JSON`; it holds every leaf's dtype, shape and checksum, so that its
own checksum names the whole message.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import numpy as np

from focusfl.tree import Tree

Wired = dict[str, bytes]  # what travels: "header", and bytes by path
Fields = dict[str, Any]  # the header's own, beside the leaves

VERSION = 2
LONGEST_HEADER = 1 << 20
LARGEST_INT = 1 << 62
MOST_AXES = 32
DTYPES = {"|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8"}
DTYPES |= {"<f2", "<f4", "<f8"}
JSON = json.JSONEncoder(allow_nan=False)


class Refused(ValueError):
    """A message that is not what it should be. It has changed nothing."""


class Packed(NamedTuple):
    """A tree as bytes, ready to go into any number of messages."""

    leaves: dict[str, Any]  # [dtype, shape, checksum] by path; a plain number as it is
    blobs: dict[str, bytes]


class Header(NamedTuple):
    fields: Fields
    leaves: dict[str, Any]
    digest: str  # its checksum: no other message has the same


def pack(sections: dict[str, Tree]) -> Packed:
    """Turn named trees into bytes; raise if a number in them is not finite."""
    packed = Packed({}, {})
    for path, leaf in paths(sections):
        if _is_scalar(leaf):
            if not math.isfinite(leaf):
                raise ValueError(f"{path} must be finite; got {leaf}.")
            packed.leaves[path] = leaf
            continue
        array = np.asarray(leaf)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in DTYPES:
            raise ValueError(f"{path} has dtype {array.dtype}, which does not travel.")
        if not np.isfinite(array).all():
            raise ValueError(f"{path} must be finite; it holds NaN or infinity.")
        blob = array.tobytes()
        packed.blobs[path] = blob
        packed.leaves[path] = [array.dtype.str, list(array.shape), digest_of(blob)]
    return packed


def encode(fields: Fields, *parts: Packed) -> Wired:
    """Put a header over what has been packed."""
    leaves = {path: leaf for part in parts for path, leaf in part.leaves.items()}
    whole = {"wire": VERSION, **fields, "leaves": leaves}
    body = JSON.encode(whole).encode()
    message = {"header": digest_of(body).encode() + b"\n" + body}
    for part in parts:
        message |= part.blobs
    return message


def header(message: Wired, own: bool = False) -> Header:
    """Read and check a header, and the sizes of what comes under it.

    What one has written oneself may be long.
    """
    if not isinstance(message, dict) or not isinstance(message.get("header"), bytes):
        raise Refused("it is not a message: no header.")
    if len(message["header"]) > LONGEST_HEADER and not own:
        raise Refused(f"its header is too long: {len(message['header'])} bytes.")
    digest, _, body = message["header"].partition(b"\n")
    if digest != digest_of(body).encode():
        raise Refused("its header does not match its checksum.")
    fields = _parse(body)
    version = fields.pop("wire", None)
    if version is True or version != VERSION:
        raise Refused(f"it does not speak version {VERSION} of this protocol.")
    leaves = fields.pop("leaves", None)
    if not isinstance(leaves, dict):
        raise Refused("its header lists no leaves.")
    arrays = {path for path, leaf in leaves.items() if not _is_scalar(leaf)}
    if message.keys() != arrays | {"header"}:
        raise Refused("its entries are not those its header lists.")
    for path in arrays:
        _check_size(path, leaves[path], message[path])
    return Header(fields, leaves, digest.decode())


def check_fields(fields: Fields, **kinds: Any) -> None:
    """Raise Refused unless a header has exactly these fields, of these types."""
    if fields.keys() != kinds.keys():
        got = _short(sorted(fields))
        raise Refused(f"its header has fields {got}, not {sorted(kinds)}.")
    for name, kind in kinds.items():
        value = fields[name]
        if type(value) is not kind and type(value) not in get_args(kind):
            words = getattr(kind, "__name__", kind)
            raise Refused(f"{name} must be {words}; got {_short(value)}.")
        if type(value) is int and not -1 <= value < LARGEST_INT:
            raise Refused(f"{name} is out of range: {_short(value)}.")


def check_leaves(leaves: dict[str, Any], like: dict[str, Tree]) -> None:
    """Raise Refused unless these are the paths, shapes and dtypes of such trees."""
    wanted = {path: _spec(leaf) for path, leaf in paths(like)}
    got = {
        path: type(leaf).__name__ if _is_scalar(leaf) else (leaf[0], tuple(leaf[1]))
        for path, leaf in leaves.items()
    }
    _compare(got, wanted)


def check_alike(got: Tree, like: Tree) -> None:
    """Raise Refused unless two trees have the same paths, shapes and dtypes."""
    _compare(*({path: _spec(a) for path, a in paths(tree)} for tree in (got, like)))


def unpack(message: Wired, head: Header) -> dict[str, Tree]:
    """Give every section as nested dicts of arrays, checksums and values checked."""
    sections: dict[str, Tree] = {}
    for path, leaf in head.leaves.items():
        *folders, name = (
            part.replace("%2F", "/").replace("%25", "%") for part in path.split("/")
        )
        place = sections
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise Refused(f"{_short(path)} lies under a leaf.")
        if name in place:
            raise Refused(f"{_short(path)} is there twice.")
        place[name] = leaf if _is_scalar(leaf) else _array(path, leaf, message[path])
    return sections


def restore(like: Tree, nested: Tree) -> Tree:
    """Give nested dicts the structure of a state, NamedTuples and all."""
    if isinstance(like, tuple):
        fields: Any = like._asdict()  # type: ignore[attr-defined]
        return type(like)(*(restore(fields[f], nested.get(f, {})) for f in fields))
    if isinstance(like, dict):
        return {name: restore(like[name], nested.get(name, {})) for name in like}
    return nested


def leaves(a: Tree) -> list[Any]:
    """List the leaves of a tree."""
    return [leaf for _, leaf in paths(a)]


def digest_of(blob: bytes) -> str:
    """A checksum: no other bytes have the same."""
    return hashlib.sha256(blob).hexdigest()[:32]


def _array(path: str, leaf: list, blob: bytes) -> np.ndarray:
    if digest_of(blob) != leaf[2]:
        raise Refused(f"{_short(path)} does not match its checksum.")
    array = np.frombuffer(blob, leaf[0])
    if not np.isfinite(array).all():
        raise Refused(f"{_short(path)} holds NaN or infinity.")
    return array.reshape(leaf[1]).copy()


def _check_size(path: str, leaf: Any, blob: Any) -> None:
    if not (isinstance(leaf, list) and len(leaf) == 3 and isinstance(leaf[1], list)):
        raise Refused(f"{_short(path)} is described by {_short(leaf)}.")
    dtype, shape, _ = leaf
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise Refused(f"{_short(path)} has dtype {_short(dtype)}.")
    sizes = all(type(size) is int and 0 <= size < LARGEST_INT for size in shape)
    if not sizes or len(shape) > MOST_AXES:
        raise Refused(f"{_short(path)} has shape {_short(shape)}.")
    if not isinstance(blob, bytes):
        raise Refused(f"{_short(path)} is {type(blob).__name__}, not bytes.")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size != len(blob):
        raise Refused(f"{_short(path)} must have {size} bytes; got {len(blob)}.")


def _parse(body: bytes) -> Fields:
    try:
        fields = STRICT.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(f"its header cannot be read: {_short(error)}.") from None
    if not isinstance(fields, dict):
        raise Refused("its header is not a table.")
    return fields


def _once(pairs: list) -> dict:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name is there twice")
    return names


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is not a finite number")
    return float(text)


STRICT = json.JSONDecoder(
    object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite
)


def _compare(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    for path in [*wanted, *got]:
        if wanted.get(path) != got.get(path):
            raise Refused(
                f"{_short(path)} must be {_short(wanted.get(path))}; got "
                f"{_short(got.get(path))}."
            )


def paths(a: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Go through the leaves, each with its path: no two have the same."""
    if isinstance(a, tuple):
        a = a._asdict()  # type: ignore[attr-defined]
    if not isinstance(a, dict):
        yield path, a
        return
    for name, part in a.items():
        if not isinstance(name, str):
            raise ValueError(f"names in a model must be str; got {name!r} in {path}.")
        name = name.replace("%", "%25").replace("/", "%2F")
        yield from paths(part, f"{path}/{name}" if path else name)


def _spec(leaf: Any) -> Any:
    if _is_scalar(leaf):
        return type(leaf).__name__
    return np.asarray(leaf).dtype.newbyteorder("<").str, np.shape(leaf)


def _is_scalar(leaf: Any) -> bool:
    return type(leaf) in (bool, int, float)


def _short(what: Any) -> str:
    """What a stranger has sent, fit for a line of a log."""
    return ascii(what) if len(ascii(what)) < 80 else ascii(what)[:77] + "..."

"""Requests and replies as bytes, and what is checked before they are used.

A message is a dict of bytes: a JSON header, and one safetensors file for each tree it
carries. The header holds the checksum of every part and begins with its own, so that
its digest names the whole message. Nothing is ever unpickled.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from focusfl.core import Round, tree
from focusfl.core.tree import Tree

Wired = dict[str, bytes]  # a message: "header", and safetensors by the name of a tree

VERSION = 3
MAX_HEADER = 1 << 16  # bytes
MAX_INT = 1 << 62
MAX_DEPTH = 100  # names of a leaf, one inside the other
UNKNOWN = float("nan")  # num_active while a round is open


class Refused(ValueError):
    """A message that is not what it should be. It has changed nothing."""


class Request(NamedTuple):
    """The header of a request: compute from this state and this model."""

    algorithm: str
    job: str
    site: str
    version: str  # of the site's state
    model: str  # names the broadcast and the round
    round: int  # -1 in the warm-up
    lr: float
    local_steps: int
    num_clients: int | float  # N, or the sum of all weights
    grads_done: int  # gradients the site has computed up to this version

    @property
    def rd(self) -> Round:
        return Round(self.round, self.lr, self.local_steps, self.num_clients, UNKNOWN)


class Reply(NamedTuple):
    """The header of a reply."""

    kind: str  # one of KINDS
    algorithm: str
    job: str
    site: str
    version: str  # of the state this was computed from
    model: str  # this was computed from
    round: int


# A push; no state of that version in the site's cache; the site leaves for good; its
# privacy budget is spent.
KINDS = ("push", "missing", "leave", "spent")


class Receipt(NamedTuple):
    """What became of a reply."""

    status: Literal["applied", "refused", "missing", "leaving", "spent"]
    why: str = ""

    @property
    def applied(self) -> bool:
        return self.status == "applied"


def digest(*parts: bytes) -> str:
    """Name content by its hash."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()[:32]


def encode(fields: Any, parts: Mapping[str, bytes]) -> Wired:
    """Put a header, a NamedTuple of JSON values, over packed trees."""
    sums = {name: digest(part) for name, part in parts.items()}
    header = {"protocol": VERSION, **fields._asdict(), "parts": sums}
    body = json.dumps(header, allow_nan=False).encode()
    return {"header": digest(body).encode() + b"\n" + body, **parts}


def decode(message: Wired, kind: type, allowed: set[str]) -> tuple[Any, str]:
    """Read and check a header and the checksums of all parts.

    Args:
        message: as it came.
        kind: of the header: Request, Reply or another NamedTuple.
        allowed: names of the parts it may carry.

    Returns:
        The header as a `kind`, and the digest that names the message.

    Raises:
        Refused: If anything is not as it should be.
    """
    if not isinstance(message, dict) or not isinstance(message.get("header"), bytes):
        raise Refused("it is not a message: no header.")
    if len(message["header"]) > MAX_HEADER:
        raise Refused(f"its header is too long: {len(message['header'])} bytes.")
    name, _, body = message["header"].partition(b"\n")
    if name != digest(body).encode():
        raise Refused("its header does not match its checksum.")
    fields = _parse(body)
    if type(fields.get("protocol")) is not int or fields.pop("protocol") != VERSION:
        raise Refused(f"it does not speak version {VERSION} of this protocol.")
    sums = fields.pop("parts", None)
    if not isinstance(sums, dict) or not sums.keys() <= allowed:
        raise Refused(f"its parts must be some of {sorted(allowed)}.")
    if message.keys() != sums.keys() | {"header"}:
        raise Refused("its parts are not those its header lists.")
    for part, checksum in sums.items():
        if not isinstance(message[part], bytes) or digest(message[part]) != checksum:
            raise Refused(f"{part} does not match its checksum.")
    _check_fields(fields, kind.__annotations__)
    return kind(**fields), name.decode()


def fields_of(message: Wired) -> dict[str, Any]:
    """Read the fields of a header without a check; empty if there is none."""
    try:
        return _parse(message["header"].partition(b"\n")[2])
    except (Refused, KeyError, AttributeError):
        return {}


def pack(a: Tree, finite: bool = True) -> bytes:
    """Turn a tree into a safetensors file.

    Raises:
        ValueError: If a number is not finite, unless `finite` is False, or an array has no
            dtype that travels.
    """
    arrays = {}
    for path, leaf in paths(a):
        array = np.asarray(leaf, order="C")
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{path} has dtype {array.dtype}, which does not travel.")
        if finite and not np.isfinite(array).all():
            raise ValueError(f"{path} must be finite; it holds NaN or infinity.")
        arrays[path] = array
    return save(arrays)


def unpack(blob: bytes, like: Tree, finite: bool = True) -> Tree:
    """Read a tree of this structure, these shapes and dtypes; Refused if it is not."""
    arrays = load_flat(blob, finite)
    leaves_by_path = dict(paths(like))
    for path in [*leaves_by_path, *arrays]:
        expected, got = _spec(leaves_by_path.get(path)), _spec(arrays.get(path))
        if expected != got:
            raise Refused(f"{short(path)} must be {_words(expected)}; got {_words(got)}.")
    leaves = iter([arrays[path] for path in leaves_by_path])
    # Numbers that are no arrays travel as arrays without axes.
    return tree.map(lambda a: next(leaves) if hasattr(a, "shape") else next(leaves).item(), like)


def load_flat(blob: bytes, finite: bool = True) -> dict[str, np.ndarray]:
    """Read the arrays of a safetensors file by path; Refused if one is not finite, unless
    `finite` is False."""
    try:
        arrays = load(blob)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"it cannot be read: {short(error)}.") from None
    for path, array in arrays.items():
        if array.dtype.kind not in "fiub" or (finite and not np.isfinite(array).all()):
            raise Refused(f"{short(path)} holds NaN, infinity or no numbers.")
    return arrays


def unpack_model(blob: bytes) -> Tree:
    """Read the model of a broadcast, whatever its structure; Refused unless it is numbers of
    floating point."""
    x = nest(load_flat(blob), "x")
    if not all(leaf.dtype.kind == "f" for leaf in leaves(x)):
        raise Refused("its model must be arrays of floating point numbers.")
    return x


def nest(flat: Mapping[str, np.ndarray], root: str) -> Tree:
    """Build nested dicts of the arrays under one name; Refused if there are none."""
    if root in flat:
        return flat[root]
    nested: dict[str, Any] = {}
    for path, array in flat.items():
        first, *folders = path.split("/")
        if first != root:
            continue
        if len(folders) > MAX_DEPTH:
            raise Refused(f"{short(path)} lies more than {MAX_DEPTH} names deep.")
        place = nested
        for folder in folders[:-1]:
            place = place.setdefault(_plain(folder), {})
            if not isinstance(place, dict):
                raise Refused(f"{short(path)} lies under an array.")
        if place.setdefault(_plain(folders[-1]), array) is not array:
            raise Refused(f"{short(path)} names what is there already.")
    if not nested:
        raise Refused(f"it carries no {root}.")
    return nested


def paths(a: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Go through the leaves of a tree, each with a path that no other has."""
    if isinstance(a, tuple):
        a = a._asdict()  # type: ignore[attr-defined]
    if not isinstance(a, dict):
        yield path or ".", a
        return
    for name, part in a.items():
        if not isinstance(name, str):
            raise ValueError(f"names in a model must be str; got {name!r} in {path}.")
        name = name.replace("%", "%25").replace("/", "%2F")
        yield from paths(part, f"{path}/{name}" if path else name)


def leaves(a: Tree) -> list[Any]:
    """List the leaves of a tree."""
    return [leaf for _, leaf in paths(a)]


def short(what: Any) -> str:
    """Write what a stranger has sent in at most 80 ASCII letters, for a line of a log."""
    return ascii(what) if len(ascii(what)) < 80 else ascii(what)[:77] + "..."


def _plain(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


def _spec(leaf: Any) -> tuple[np.dtype, tuple[int, ...]] | None:
    """Give dtype and shape of a leaf; None if there is none."""
    if leaf is None:
        return None
    array = np.asarray(leaf)
    return array.dtype.newbyteorder("="), array.shape


def _words(spec: tuple[np.dtype, tuple[int, ...]] | None) -> str:
    return "absent" if spec is None else f"{spec[0]} of shape {spec[1]}"


def _check_fields(fields: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    if fields.keys() != kinds.keys():
        raise Refused(f"its header has {short(sorted(fields))}, not {sorted(kinds)}.")
    for name, kind in kinds.items():
        value = fields[name]
        if type(value) is not kind and type(value) not in get_args(kind):
            raise Refused(f"{name} must be {kind}; got {short(value)}.")
        if type(value) is int and not -1 <= value < MAX_INT:
            raise Refused(f"{name} is out of range: {short(value)}.")
        if type(value) is float and not math.isfinite(value):
            raise Refused(f"{name} must be finite; got {value}.")


def _parse(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise Refused(f"its header cannot be read: {short(error)}.") from None
    if not isinstance(fields, dict):
        raise Refused("its header is not a table.")
    return fields


def _unique(pairs: list) -> dict:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name is there twice")
    return names

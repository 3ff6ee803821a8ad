"""Whether the files in a folder are as they were written.

Of a study, a deployment's server or site, the suite, or a checkpoint: files of a study are
compared with the checksums in its manifest, others with what they say of themselves. What
nobody reads back, pages and figures, is unknown.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from focusfl.core import files
from focusfl.core.models import read_model
from focusfl.studies.store import MANIFEST, Folder, manifest_so_far

State = Literal["ok", "damaged", "unknown"]
RANK: tuple[State, ...] = ("unknown", "ok", "damaged")  # what is found last counts
CHECKPOINT = "checkpoint.npz"
DATABASE, EVENTS = "server.db", "events.jsonl"  # of a deployment's server
DEPLOYMENT = (EVENTS, "processes.json", "study.json")  # without a checksum


class Finding(NamedTuple):
    """What was found of one file."""

    file: str
    state: State
    why: str = ""


def verify(folder: Path) -> list[Finding]:
    """Look at every file in a folder and in those inside it.

    Raises:
        ValueError: If there is no folder, or nothing in it that focusfl reads back.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; name one that focusfl wrote to.")
    findings: dict[Path, Finding] = {}
    paths = [path for path in folder.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.name == MANIFEST, path)):
        for file, state, why in _look(path):
            if file not in findings or RANK.index(state) > RANK.index(findings[file].state):
                findings[file] = Finding(file.relative_to(folder).as_posix(), state, why)
    if all(finding.state == "unknown" for finding in findings.values()):
        raise ValueError(
            f"{folder} holds nothing that can be verified; name the folder of a study, "
            "a checkpoint, the suite, or a deployment's server or site."
        )
    return sorted(findings.values())


def _look(path: Path) -> Iterator[tuple[Path, State, str]]:
    """What a file says of itself, and of others."""
    try:
        yield path, *_read(path)
        if path.name == MANIFEST:
            here = Folder(path.parent, manifest_so_far(path.parent))
            for name in here.files:
                yield path.parent / name, *_named(here, name)
        if path.name == CHECKPOINT:
            yield from _rows(path.parent)
    except FileNotFoundError as error:
        yield Path(error.filename), "damaged", "it is missing"
    except OSError as error:
        yield path, "unknown", f"it cannot be read: {error.strerror}"
    except ValueError as error:  # Refused and Damaged are such
        yield path, "damaged", str(error)


def _read(path: Path) -> tuple[State, str]:
    """Read a file as whoever uses it does; raise if it is damaged."""
    if path.name.startswith(".part-"):
        return "unknown", "a writer that was killed left it"
    if path.name == DATABASE:
        from focusfl.flower.protocol.store import check

        check(path)
        return "ok", ""
    sealed = False
    if path.stat().st_size:
        with open(path, "rb") as file:
            sealed = files.check(path, file) is not None
    if path.name == CHECKPOINT:
        from focusfl.simulation.checkpoint import read_arrays

        read_arrays(path)
    elif path.suffix == ".safetensors":
        read_model(path)
    elif path.suffix in (".json", ".jsonl") and not sealed:
        return _unsealed(path)
    return ("ok", "") if sealed else ("unknown", "")


def _unsealed(path: Path) -> tuple[State, str]:
    """A file of JSON without a checksum: of a deployment's, whether its form is right."""
    content = path.read_bytes()
    if path.name not in DEPLOYMENT:
        if b'"seal"' in content:
            raise files.Damaged(f"{path} is damaged: its checksum is gone")
        return "unknown", "it has no checksum"
    lines = content.splitlines() if path.suffix == ".jsonl" else [content]
    for number, line in enumerate(lines, 1):
        try:
            known = files.parse_json(line)
        except ValueError:
            known = None
        if not isinstance(known, dict) or (path.name == EVENTS and "event" not in known):
            raise files.Damaged(
                f"line {number} is not whole: a writer was killed, or it is damaged"
            )
    return "ok", "in form; it has no checksum"


def _named(folder: Folder, name: str) -> tuple[State, str]:
    """A file that a manifest has the checksum of."""
    if not (folder.path / name).is_file():
        return "damaged", "it is missing"
    try:
        folder.read(name)
    except files.Damaged as error:
        return "damaged", str(error)
    return "ok", ""


def _rows(folder: Path) -> Iterator[tuple[Path, State, str]]:
    """Clients' rows that a checkpoint goes with."""
    from focusfl.simulation.checkpoint import read_arrays
    from focusfl.simulation.rows import check_rows

    arrays: dict[str, Any] = read_arrays(folder / CHECKPOINT)
    for path, why in check_rows(folder, arrays):
        yield path, "damaged" if why else "ok", why

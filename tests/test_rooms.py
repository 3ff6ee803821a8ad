"""Rooms import downwards only: what a reader finds below needs nothing from above."""

import ast
from pathlib import Path

import focusfl

SOURCE = Path(focusfl.__file__).parent
# From the ground up; rooms of one floor may know each other.
FLOORS = [
    {"compat", "core"},
    {"compression", "data"},
    {"algorithms", "participation", "problems"},
    {"mixing", "privacy"},
    {"theory"},
    {"simulation"},
    {"flower"},
    {"studies"},
    {"conformance"},
    {"suite"},
    {"deploy", "cli"},
]
# Looks upwards that are known, each inside a function and for a reason.
KNOWN = {
    ("theory.auto", "simulation"): "tries steps by short runs",
    ("theory.lyapunov", "simulation"): "follows a proof along a run of the reference",
    ("flower.ending", "deploy"): "a server app leaves what a study leaves",
}


def floor_of(room: str) -> int:
    return next(level for level, rooms in enumerate(FLOORS) if room in rooms)


def imports() -> list[tuple[str, str]]:
    """Every (module, room it imports) of the package, those inside functions too."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        if not module or "template" in parts:
            continue  # the front door, and what is copied for others
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                top, _, rest = name.partition(".")
                room = rest.split(".")[0]
                known = (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file()
                if top == "focusfl" and room and known:
                    found.append((module, room))
    return found


def test_every_room_has_its_floor():
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py")}
    rooms -= {"__init__", "__pycache__", "py"}
    assert not rooms - set().union(*FLOORS)


def test_rooms_import_downwards():
    upwards = {
        (module, room)
        for module, room in imports()
        if floor_of(module.split(".")[0]) < floor_of(room)
    }
    assert upwards == set(KNOWN)

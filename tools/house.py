"""Measure the size and shape of the source tree, as one table.

    python tools/house.py [--json]

Run it before and after a change: lines are a cost.
"""

import argparse
import ast
import inspect
import json
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Modules that their packages call private, writes to another package's globals, and
# private attributes of the interpreter's own modules.
PRIVATE = re.compile(
    r"(?:from|import)\s+(?:jax|jaxlib|torch|flwr|numpy|pytest|hypothesis|jaxtyping|pandas|pyarrow)"
    r"[\w.]*\._\w+"
    r"|(?:from|import)\s+flwr\.(?:cli|common|proto|supercore|superlink|supernode)\b"
    r"|\b(?:atexit|sys|threading|signal|jax|torch|np|pool)\._[a-z]"
    r"|vars\(\w+\)\[[^]]+\]\s*=|__globals__\[|__code__\s*=|\bgc\.(?:disable|freeze|set_threshold)\b"
)
PUBLIC = {"_replace", "_asdict", "_fields", "_make"}  # of named tuples
REASON = ROOT / "src/focusfl/compat.py"  # where a private use stands with its reason


def files(folder: str) -> list[Path]:
    """Return the Python files below a folder of the tree."""
    return sorted((ROOT / folder).rglob("*.py"))


def docstring_lines(path: Path) -> int:
    """Count the lines of a file that belong to docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    total = 0
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            text = node.body[0]
            total += text.end_lineno - text.lineno + 1  # type: ignore[operator]
    return total


def comment_lines(path: Path) -> int:
    """Count the lines of a file that hold nothing but a comment."""
    with open(path, "rb") as file:
        tokens = tokenize.tokenize(file.readline)
        return sum(
            token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
            for token in tokens
        )


def public_names() -> int:
    """Count what a user can type: the objects in focusfl and in its public modules."""
    import focusfl

    objects = {}
    modules = [focusfl]
    for module in modules:
        for name in getattr(module, "__all__", None) or dir(module):
            value = getattr(module, name)
            if inspect.ismodule(value):
                if module is focusfl:
                    modules.append(value)
            elif not name.startswith("_") and _is_of_focusfl(value):
                objects[id(value)] = value
    return len(objects) + len(modules) - 1


def _is_of_focusfl(value: object) -> bool:
    """Whether an object is defined in focusfl; constants do not say where they are."""
    return (getattr(value, "__module__", None) or "focusfl").startswith("focusfl")


def private_uses(folder: str) -> list[str]:
    """List the lines below a folder, but for compat.py, that reach into another package."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files(folder)
        if path != REASON
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]


def private_reads(folder: str) -> int:
    """Count the uses of `value._name`, of whatever but `self` and `cls`, below a folder."""
    return sum(
        isinstance(node, ast.Attribute)
        and re.match(r"_[^_]", node.attr) is not None
        and node.attr not in PUBLIC
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        for path in files(folder)
        for node in ast.walk(ast.parse(path.read_text()))
    )


def measure() -> dict[str, object]:
    """Return every figure by name."""
    import focusfl

    source = files("src")
    lines = sum(len(path.read_text().splitlines()) for path in source)
    rooms = {
        folder.name: sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))
        for folder in sorted((ROOT / "src/focusfl").iterdir())
        if folder.is_dir() and folder.name != "__pycache__"
    }
    return {
        "source lines": lines,
        "source files": len(source),
        "docstring share": round(sum(map(docstring_lines, source)) / lines, 3),
        "full-line comments": sum(map(comment_lines, source)),
        "longest file": max(len(p.read_text().splitlines()) for p in source),
        "public names": public_names(),
        "parameters of simulate": len(inspect.signature(focusfl.simulate).parameters),
        "test lines": sum(len(p.read_text().splitlines()) for p in files("tests")),
        "lines of tests/conftest.py": len((ROOT / "tests/conftest.py").read_text().splitlines()),
        "lines of compat.py": len(REASON.read_text().splitlines()) if REASON.exists() else 0,
        "reads of private attributes, src": private_reads("src"),
        "reads of private attributes, tests": private_reads("tests"),
        "private uses of other packages, src": private_uses("src"),
        "private uses of other packages, tests": private_uses("tests"),
        "lines by room": rooms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures = measure()
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        if isinstance(value, list):
            print(f"{name:38}{len(value):>8}", *value, sep="\n    ")
        elif isinstance(value, dict):
            print(name)
            for room, count in value.items():
                print(f"    {room:34}{count:>8,}")
        else:
            print(f"{name:38}{value:>8,}")


if __name__ == "__main__":
    main()

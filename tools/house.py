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
# Modules that their packages call private, and writes to another package's globals.
PRIVATE = re.compile(
    r"(?:from|import)\s+(?:jax|jaxlib|torch|flwr|numpy|pytest|beartype|jaxtyping)"
    r"[\w.]*\._\w+"
    r"|\batexit\._|__globals__\[|__code__\s*=|vars\(\w+\)\[[^]]+\]\s*="
    r"|from flwr\.(?:supercore|superlink|supernode|proto|common)\b"
    r"|from flwr\.cli\b"
)


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
    """Count what a user can type: names of focusfl and of its public modules."""
    import focusfl

    names = set(focusfl.__all__)
    for name in focusfl.__all__:
        value = getattr(focusfl, name)
        if inspect.ismodule(value):
            names |= {f"{name}.{inner}" for inner in getattr(value, "__all__", ())}
    return len(names)


def private_uses() -> list[str]:
    """List the lines of src and tests that reach into another package."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files("src") + files("tests")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]


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
        "lines that reach into other packages": private_uses(),
        "lines by room": rooms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = measure()
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
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

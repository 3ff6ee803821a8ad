"""`focusfl new`: write a study, or a package with a part of one's own, to begin from."""

import argparse
import importlib
import importlib.util
import json
import keyword
import os
import shutil
import tempfile
from pathlib import Path

from focusfl.cli.options import Option, command
from focusfl.core.registry import ALGORITHMS, PARTICIPATION, PROBLEMS, Registry, check_name

TEMPLATE = Path(__file__).parent / "template"
PARTS: dict[str, Registry] = {
    "algorithm": ALGORITHMS,
    "participation": PARTICIPATION,
    "problem": PROBLEMS,
}


@command(
    "new", "write a study, or a package with your own part, to begin from",
    "focusfl new study.toml, or focusfl new algorithm my_method",
    Option("what", metavar="STUDY.toml|algorithm|problem|participation",
           help="TOML file to write, or the kind of part"),
    Option("part", metavar="NAME", nargs="?", help="of the part, and of its package"),
)  # fmt: skip
def _new(options: argparse.Namespace) -> int:
    if options.what in PARTS:
        target, then = _package(options.what, options.part), "pip install -e {0} && pytest {0}"
    else:
        target, then = _study(options.what, options.part), "focusfl run {0}"
    if options.json:
        files = sorted(map(str, target.rglob("*.*"))) if target.is_dir() else [str(target)]
        print(json.dumps({"files": files}))
    else:
        print(f"written: {target}\ntry it: {then.format(target)}")
    return 0


def _study(what: str, name: str | None) -> Path:
    """Write a study with comments."""
    from focusfl.core.files import write
    from focusfl.studies.spec import STUDIES

    target = Path(what)
    if target.exists():
        raise ValueError(f"{target} exists; name another file.")
    if target.suffix != ".toml":
        raise ValueError(
            f"a study is a .toml file; got {target}. For a part of your own say "
            f"{', '.join(PARTS)}, and its name."
        )
    if name is not None:
        raise ValueError(f"new {target} takes no name; got {name!r}.")
    return write(target, (STUDIES / "new.toml").read_text())


def _package(what: str, name: str | None) -> Path:
    """Write a package with a part that works: its module, entry point, test and README."""
    registry = PARTS[what]
    importlib.import_module(registry.group)  # which registers what focusfl has itself
    if name is None:
        raise ValueError(f"new {what} needs a name, as in focusfl new {what} my_{what}.")
    check_name(what, name)
    target = Path(name)
    if target.exists():
        raise ValueError(f"{target} exists; choose another name.")
    if name in registry:
        raise ValueError(f"{registry.what} {name!r} exists already; choose another name.")
    if keyword.iskeyword(name) or importlib.util.find_spec(name) is not None:
        raise ValueError(f"{name!r} is a word or a module of Python already; choose another name.")
    folder = TEMPLATE / what
    words = {
        "STUDY": (folder / "study.toml").read_text(),
        "NAME": name,
        "CLASS": "".join(word.capitalize() for word in name.split("_")),
        "GROUP": registry.group,
        "WHAT": registry.what,
    }
    # Under another name first: the folder is there whole or not at all.
    part = Path(tempfile.mkdtemp(prefix=f".{name}.", dir="."))
    try:
        for file, template in {
            "pyproject.toml": TEMPLATE / "pyproject.toml",
            "README.md": TEMPLATE / "README.md",
            f"{name}.py": folder / "part.py.txt",
            f"tests/test_{name}.py": folder / "test.py.txt",
        }.items():
            text = template.read_text()
            for word, meaning in words.items():
                text = text.replace(word, meaning)
            (part / file).parent.mkdir(exist_ok=True)
            (part / file).write_text(text)
        part.chmod(0o755)
        os.rename(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return target

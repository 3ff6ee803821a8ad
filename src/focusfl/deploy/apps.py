"""Folders of Flower apps: written, and read."""

import json
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from focusfl.deploy import study as studies
from focusfl.deploy.study import Deployed

TEMPLATE = Path(__file__).parent / "template"
PACKAGE = "training"  # what the code of an app is called
CONFIG = "[tool.flwr.app.config]"


def init(folder: Path) -> list[Path]:
    """Write an app to begin with, a copy of the template; give its files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} must be a new or empty folder; it is not.")
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    files = [
        Path(shutil.copy(source, package if source.suffix == ".py" else folder))
        for source in sorted(TEMPLATE.iterdir())
        if source.is_file() and source.name != "__init__.py"
    ]
    ignored, empty = folder / ".gitignore", package / "__init__.py"
    ignored.write_text("keys/\nruns/\n")  # by git, and by Flower when it sends the app
    empty.write_text("")
    (folder / "keys.sh").chmod(0o755)
    return [*files, ignored, empty]


def settings(folder: Path) -> dict[str, Any]:
    """Read the settings of an app from its pyproject.toml; none if it has none.

    Raises:
        ValueError: If the folder is not that of an app.
    """
    try:
        text = (folder / "pyproject.toml").read_text()
        return tomllib.loads(text)["tool"]["flwr"]["app"].get("config", {})
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        raise ValueError(
            f"{folder} must be the folder of a Flower app: a pyproject.toml with [tool.flwr.app]."
        ) from None


def sites(folder: Path) -> list[str]:
    """Read who takes part from the settings of an app; ValueError if they do not say it."""
    names = settings(folder).get("sites")
    if not isinstance(names, str) or not names.split():
        raise ValueError(
            f'who takes part must be said by sites = "site-0 site-1" in {CONFIG} of '
            f"{folder}; got {names!r}."
        )
    return names.split()


def add_settings(folder: Path, more: Mapping[str, Any]) -> None:
    """Add settings that an app does not have yet: in a run Flower takes no others."""
    before, file = settings(folder), folder / "pyproject.toml"
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in more.items() if key not in before]
    title = re.compile(rf"^{re.escape(CONFIG)}.*\n", re.M)
    file.write_text(title.sub(lambda match: match[0] + "".join(lines), file.read_text(), 1))
    if settings(folder) != {**more, **before}:
        raise ValueError(f"{CONFIG} of {folder} must be a table of its own; it is not.")


def write_study(deployed: Deployed, folder: Path, more: Mapping[str, Any]) -> Path:
    """Write a study as an app with these settings; give its folder."""
    package = folder / PACKAGE
    package.mkdir(parents=True)
    text = (TEMPLATE / "pyproject.toml").read_text()
    head = text[: text.index(CONFIG)]
    lines = [CONFIG, f'job = "{deployed.study.name}"']
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    (folder / "pyproject.toml").write_text(head + "\n".join(lines) + "\n")
    (package / "__init__.py").write_text("")
    for side in ("server", "client"):
        (package / f"{side}_app.py").write_text(
            "from pathlib import Path\n\n"
            f"from focusfl.deploy.study import study_{side}\n\n"
            f"app = study_{side}(Path(__file__).parent)\n"
        )
    studies.write(deployed, package / studies.FILE)
    return folder

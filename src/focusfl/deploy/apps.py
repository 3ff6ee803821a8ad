"""Folders of Flower apps: written, and read."""

import json
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from focusfl.deploy import study as studies
from focusfl.deploy.study import Deployed

TEMPLATE = Path(__file__).parent / "template"
PACKAGE = "training"  # what the code of an app is called


def init(folder: Path) -> list[Path]:
    """Write an app to begin with; give its files."""
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
    ignored.write_text(
        "keys/\nruns/\nnginx.*\n!nginx.conf\n"
    )  # by git, and by Flower when it sends the app
    empty.write_text("")
    (folder / "keys.sh").chmod(0o755)
    return [*files, ignored, empty]


def settings(folder: Path) -> dict[str, Any]:
    """Read the settings of an app."""
    file = folder / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text())["tool"]["flwr"]["app"]["config"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        raise ValueError(
            f"{folder} must be the folder of a Flower app: a pyproject.toml with "
            "[tool.flwr.app.config]."
        ) from None


def write_study(deployed: Deployed, folder: Path, more: Mapping[str, Any]) -> Path:
    """Write a study as an app; give its folder."""
    package = folder / PACKAGE
    package.mkdir(parents=True)
    text = (TEMPLATE / "pyproject.toml").read_text()
    head = text[: text.index("[tool.flwr.app.config]")]
    lines = ["[tool.flwr.app.config]", f'job = "{deployed.study.name}"']
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    (folder / "pyproject.toml").write_text(head + "\n".join(lines) + "\n")
    (package / "__init__.py").write_text("")
    module = "focusfl.deploy.faults.app" if "chaos" in more else "focusfl.deploy.study"
    for side in ("server", "client"):
        (package / f"{side}_app.py").write_text(
            "from pathlib import Path\n\n"
            f"from {module} import study_{side}\n\n"
            f"app = study_{side}(Path(__file__).parent)\n"
        )
    studies.write(deployed, package / studies.FILE)
    return folder

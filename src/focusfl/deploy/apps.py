"""Folders of Flower apps: written, and read."""

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from focusfl.deploy import study as studies
from focusfl.deploy.study import Deployed

TEMPLATE = Path(__file__).parent / "template"
PACKAGE = "training"  # what the code of an app is called
CONFIG = "[tool.flwr.app.config]"
OF_JOB = {"job": str, "sites": str, "rounds": int}  # settings that a Job has too


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


def _flower(folder: Path) -> dict[str, Any]:
    """Read Flower's part of an app's pyproject.toml; ValueError if there is none."""
    file = folder / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text())["tool"]["flwr"]["app"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        raise ValueError(
            f"{folder} must be the folder of a Flower app: a pyproject.toml with [tool.flwr.app]."
        ) from None


def settings(folder: Path) -> dict[str, Any]:
    """Read the settings of an app; none if it has none."""
    return _flower(folder).get("config", {})


def settings_with_job(folder: Path) -> dict[str, Any]:
    """Read the settings of an app, and from its Job the job, sites and rounds that
    it does not set.

    Raises:
        ValueError: if nobody says who the sites are, or a setting is of a wrong type.
    """
    known, why = settings(folder), ""
    if OF_JOB.keys() - known.keys():
        code = "import sys; from focusfl.deploy import apps; apps.print_job(sys.argv[1])"
        done = subprocess.run(
            [sys.executable, "-B", "-c", code, str(folder)],
            capture_output=True, text=True,
        )  # fmt: skip
        last = (done.stdout if done.returncode == 0 else done.stderr).strip()
        last = last.rpartition("\n")[2]
        why = f" ({last})" if done.returncode else ""
        known = {**({} if done.returncode else json.loads(last)), **known}
    if "sites" not in known:
        raise ValueError(
            f'who takes part must be said by sites = "site-0 site-1" in {CONFIG} of '
            f"{folder}, or by the Job of its server_app(job); neither does{why}."
        )
    for name, kind in OF_JOB.items():
        if not isinstance(known.get(name, kind()), kind):
            raise ValueError(
                f"{name} in {CONFIG} of {folder} must be "
                f"{'text' if kind is str else 'a whole number'}; got {known[name]!r}."
            )
    return known


def print_job(folder: str) -> None:
    """Import the server app of an app and print what its Job says, as JSON."""
    from flwr.app import Context, RecordDict

    from focusfl.flower.app import JobApp

    module, _, name = _flower(Path(folder))["components"]["serverapp"].partition(":")
    sys.path.insert(0, str(Path(folder).resolve()))
    app, known = getattr(importlib.import_module(module), name), {}
    if isinstance(app, JobApp):
        job = app.job_of(Context(0, 0, {}, RecordDict(), settings(Path(folder))))
        known = {"job": job.job, "sites": " ".join(job.sites), "rounds": job.rounds}
    print(json.dumps(known))


def add_settings(folder: Path, more: Mapping[str, Any]) -> None:
    """Add settings that an app does not have yet: in a run Flower takes no others."""
    before = settings(folder)
    more = {key: value for key, value in more.items() if key not in before}
    file = folder / "pyproject.toml"
    text = file.read_text()
    if not re.search(rf"^{re.escape(CONFIG)}", text, re.M):
        text += f"\n{CONFIG}\n"
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    head, title, rest = text.partition(CONFIG)
    line, end, rest = rest.partition("\n")
    file.write_text(f"{head}{title}{line}\n{lines}{rest}")
    if settings(folder) != {**before, **more}:
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

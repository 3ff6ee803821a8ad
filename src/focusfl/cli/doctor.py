"""`focusfl doctor`: what is installed, what is missing and what works."""

import argparse
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from focusfl import __version__
from focusfl.cli.options import command
from focusfl.core.extras import WHERE, install

# Versions (major.minor) that the tests were run with.
TESTED = {
    "python": ("3.11",),
    "flwr": ("1.41", "1.42"),
    "jax": ("0.10", "0.11"),
    "torch": ("2.13",),
}
FLOWER = ("flwr", "flower-superlink", "flower-supernode", "flower-superexec")

Section = dict[str, Any]  # what was looked for -> what was found, None if nothing


@command(
    "doctor", "say what is installed, what is missing and what works", "focusfl doctor"
)  # fmt: skip
def _doctor(options: argparse.Namespace) -> int:
    from focusfl.studies.report import terminal

    needed, extras = packages()
    sections: dict[str, Section] = {
        "versions": needed,
        **{f"extra {name}": versions for name, versions in extras.items()},
        "machine": _attempt(_machine),
        "a run": _attempt(_run),
        "caches": _caches(),
        "data": _data(),
        "commands": _commands(),
        **_certificates(),
    }
    failures = [f"{name} is missing" for name, version in needed.items() if not version]
    failures += [section["failed"] for section in sections.values() if "failed" in section]
    incomplete = [install(name) for name, versions in extras.items() if None in versions.values()]
    other_versions = untested(needed, *extras.values())
    verdict = "focusfl works"
    if failures:
        verdict = "focusfl does not work here: " + "; ".join(failures)
    else:
        if other_versions:
            verdict += f"; not tested with {', '.join(other_versions)}"
        if incomplete:
            verdict += f"; without extras, installed {WHERE}: {', '.join(incomplete)}"
    if options.json:
        summary = {"works": not failures, "verdict": verdict, "untested": other_versions}
        print(json.dumps({**summary, **sections}, indent=2))
    else:
        rows = [(name, _line(name, section)) for name, section in sections.items()]
        rows += [("not tested", f"{name}: {which}") for name, which in other_versions.items()]
        terminal.print_table("", ("", "found"), rows)
        print(verdict)
    return 1 if failures else 0


def _line(name: str, section: Section) -> str:
    """Write a section in one line: what is there, and then what is missing."""
    there = [f"{what} {value}" for what, value in section.items() if value is not None]
    absent = [what for what, value in section.items() if value is None]
    parts = [", ".join(there)] if there else []
    if absent:
        missing = "not fetched" if name == "data" else "missing"
        parts.append(f"{missing}: {', '.join(absent)}")
    return "; ".join(parts)


def packages() -> tuple[Section, dict[str, Section]]:
    """Find the versions of the packages that focusfl needs, and those of each extra."""
    needed: Section = {"focusfl": __version__, "python": platform.python_version()}
    extras: dict[str, Section] = {}
    try:
        requirements = metadata.requires("focusfl") or []
    except metadata.PackageNotFoundError:  # run from its folder, not installed
        requirements = ["jax", "numpy"]
    for requirement in [*requirements, "jaxlib"]:
        extra = re.search(r"extra == ['\"]([\w-]+)", requirement)
        versions = extras.setdefault(extra[1], {}) if extra else needed
        name = re.split(r"[^\w.-]", requirement)[0]
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return needed, extras


def untested(*groups: Section) -> dict[str, str]:
    """Name the packages whose version is not one of `TESTED`, with those that are."""
    return {
        f"{name} {version}": f"tested with {', '.join(TESTED[name])}"
        for versions in groups
        for name, version in versions.items()
        if version and name in TESTED
        if ".".join(version.split(".")[:2]) not in TESTED[name]
    }


def _attempt(look: Callable[[], Section]) -> Section:
    """Give what is found, or what went wrong, whatever it is."""
    try:
        return look()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}


def _machine() -> Section:
    import jax

    from focusfl.simulation import devices as placement

    devices = {
        f"device {k}": f"{device.platform} ({device.device_kind})"
        for k, device in enumerate(jax.devices())
    }
    return {
        "cores": os.cpu_count(),
        "memory": f"{placement.available() / 2**30:.3g} GiB",
        **devices,
    }


def _run() -> Section:
    """Run a small problem, which must end at the optimum but for rounding."""
    import focusfl as ff
    from focusfl.studies.verdict import EXACT

    start = time.perf_counter()
    problem = ff.problems.random_quadratic(num_clients=4, dim=5, L=1.1)
    participation = ff.participation.Uniform(m=2)
    result = ff.simulate(ff.Focus(), problem, participation, rounds=500, lr=0.2)
    error = float(result.metrics["distance"][-1])
    if not error <= EXACT:
        raise ArithmeticError(f"a run ended {error:.0e} away from the optimum")
    return {"error": float(f"{error:.1e}"), "seconds": round(time.perf_counter() - start, 2)}


def _caches() -> Section:
    """Say where downloads and compiled programs are kept."""
    from focusfl.core import compilation

    caches: Section = {"folder": str(compilation.cache_folder())}
    try:
        folder = compilation.use_compilation_cache()
    except ImportError:  # a broken jax, which `_machine` has reported
        return caches
    caches["compiled programs"] = "are not kept"
    if folder is not None:
        sizes = [file.stat().st_size for file in folder.glob("*-cache")]
        size = f"{len(sizes)} programs, {sum(sizes) / 2**20:.1f} MiB"
        caches["compiled programs"] = f"{folder} ({size})"
    return caches


def _data() -> Section:
    from focusfl.data import DATA_SETS, places

    folders: Section = {"FOCUSFL_DATA": os.environ.get("FOCUSFL_DATA") or "not set"}
    for name, entry in DATA_SETS.items():
        if not entry.package:
            paths = places.present(entry)
            folders[name] = str(paths[0].parent) if paths else None
    return folders


def _commands() -> Section:
    """Find Flower's commands, where `focusfl deploy` will."""
    from focusfl.deploy.processes import environment

    path = environment(Path())["PATH"]
    return {name: shutil.which(name, path=path) for name in FLOWER}


def _certificates() -> dict[str, Section]:
    """Say how long the certificates in ./keys are valid, if there are any."""
    folder = Path("keys")
    if not [*folder.glob("*.crt")] or find_spec("flwr") is None:
        return {}
    from focusfl.flower.identity import expiries

    return {"certificates": {str(folder): " ".join(expiries(folder)) or "good"}}

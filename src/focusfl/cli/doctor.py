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
from focusfl.core.extras import WHERE, install

# Versions that the tests were run with, as far as they are compared.
TESTED = {
    "python": ("3.11",),
    "flwr": ("1.41", "1.42"),
    "jax": ("0.10",),
    "torch": ("2.13",),
}
FLOWER = ("flwr", "flower-superlink", "flower-supernode", "flower-superexec")

Section = dict[str, Any]  # by what was looked at: what was found, None if nothing


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command, by the function that adds any command."""
    command(
        "doctor", _doctor, "say what is installed, what is missing and what works",
        "focusfl doctor",
    )  # fmt: skip


def _doctor(options: argparse.Namespace) -> int:
    from focusfl.studies.report import terminal

    packages = _packages()
    found = {
        **packages,
        **untested(packages),
        "machine": _attempt(_machine),
        "a run": _attempt(_run),
        "data": _data(),
        "commands": _commands(),
        **_certificates(),
    }
    reasons = [f"{name} is missing" for name, v in found["needed"].items() if not v]
    reasons += [own["failed"] for own in found.values() if "failed" in own]
    extras = {name: own for name, own in found.items() if "[" in name}
    absent = [name for name, own in extras.items() if None in own.values()]
    without = f"; without {', '.join(absent)}, which are installed {WHERE}"
    verdict = "focusfl works" + without * bool(absent)
    if "not tested" in found:
        verdict += f"; not tested with {', '.join(found['not tested'])}"
    if reasons:
        verdict = "focusfl does not work here: " + "; ".join(reasons)
    rows = []
    for section, own in found.items():
        extra = re.search(r"\[(.+)\]", section)
        no = f"missing: {install(extra[1])}" if extra else "missing"
        if section == "data":
            no = "not fetched"
        for what, value in own.items():
            rows.append((section, what, no if value is None else str(value)))
            section = ""  # is said once
    if options.json:
        whole = {"works": not reasons, "verdict": verdict, **found}
        print(json.dumps(whole, indent=2))
    else:
        terminal.print_table("", ("", "", "found"), rows)
        print(verdict)
    return 1 if reasons else 0


def _packages() -> dict[str, Section]:
    """Versions of what focusfl needs, and by extra of what it can use."""
    needed: Section = {"focusfl": __version__, "python": platform.python_version()}
    found = {"needed": needed}
    try:
        needs = metadata.requires("focusfl") or []
    except metadata.PackageNotFoundError:  # run from its folder, not installed
        needs = ["jax", "numpy"]
    for need in [*needs, "jaxlib"]:
        extra = re.search(r"extra == ['\"]([\w-]+)", need)
        own = found.setdefault(f"focusfl[{extra[1]}]", {}) if extra else needed
        name = re.split(r"[^\w.-]", need)[0]
        try:
            own[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            own[name] = None
    return found


def untested(found: dict[str, Section]) -> dict[str, Section]:
    """What is installed in a version that focusfl was not tested with, if anything."""
    words = {
        f"{name} {version}": f"tested with {', '.join(TESTED[name])}"
        for own in found.values()
        for name, version in own.items()
        if version and name in TESTED
        if ".".join(version.split(".")[:2]) not in TESTED[name]
    }
    return {"not tested": words} if words else {}


def _attempt(look: Callable[[], Section]) -> Section:
    """What is found, or what went wrong: it is a doctor's trade."""
    try:
        return look()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}


def _machine() -> Section:
    import jax

    from focusfl.simulation import placement

    kinds = [f"{each.platform}, {each.device_kind}" for each in jax.devices()]
    devices = {f"device {k}": kind for k, kind in enumerate(kinds)}
    gib = f"{placement.available() / 2**30:.3g} GiB"
    return {"cores": os.cpu_count(), **devices, "memory": gib}


def _run() -> Section:
    """A small run that must end at the optimum, but for rounding."""
    import focusfl as ff
    from focusfl.studies.verdict import EXACT

    start = time.perf_counter()
    problem = ff.problems.random_quadratic(num_clients=4, dim=5, L=1.1)
    law = ff.participation.Uniform(m=2)
    result = ff.simulate(ff.Focus(), problem, law, rounds=500, lr=0.2)
    error = float(result.metrics["distance"][-1])
    if not error <= EXACT:
        raise ArithmeticError(f"a run ended {error:.0e} away from the optimum")
    return {"error": error, "seconds": round(time.perf_counter() - start, 2)}


def _data() -> Section:
    from focusfl.data import DATA_SETS, places

    found: Section = {
        "FOCUSFL_DATA": os.environ.get("FOCUSFL_DATA") or "not set",
        "cache": str(places.cache_folder()),
    }
    for name, entry in DATA_SETS.items():
        if not entry.package:
            paths = places.present(entry)
            found[name] = str(paths[0].parent) if paths else None
    return found


def _commands() -> Section:
    """Flower's commands, as `focusfl deploy` will find them."""
    from focusfl.deploy.processes import environment

    path = environment(Path())["PATH"]
    return {name: shutil.which(name, path=path) for name in FLOWER}


def _certificates() -> dict[str, Section]:
    """How long those of the server are good, in the folder of an app."""
    folder = Path("keys")
    if not [*folder.glob("*.crt")] or find_spec("flwr") is None:
        return {}
    from focusfl.flower.public_keys import ending

    return {"certificates": {str(folder): " ".join(ending(folder)) or "good"}}

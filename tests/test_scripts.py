"""Every script of benchmarks/, experiments/ and docs/draw runs in small."""

import os
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "experiments", "docs/draw")
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if '__name__ == "__main__"' in path.read_text()
)
# A side is run by the run.py beside it.
WHOLE = [name for name in SCRIPTS if not name.endswith("_side.py")]
STUDY = "-m focusfl.cli run experiments/{0}/study.toml -o runs/{0} --quiet"
# What a script is called with where it is neither --quick nor nothing, after the
# commands that make what it reads.
CALLS = {
    "benchmarks/conformance/run.py": ["--table"],
    "benchmarks/peers/run.py": ["--quick --peers"],  # others are installed by pip
    "experiments/absence/draw.py": [
        "experiments/absence/shrink.py",
        STUDY.format("absence")
        + " --set rounds=1 --set eval_every=1 --set seeds=[0] --algorithms mifa",
        "runs/absence",
    ],
    "experiments/first-steps/measure.py": ["digits --rounds 3 --seeds 1"],
    "experiments/natural/packages.py": ["--only star"],
    "experiments/phones/draw.py": [
        STUDY.format("phones") + " --set rounds=40 --algorithms focus,mifa,fedavg",
        "runs/phones",
    ],
}
SECONDS = 300  # on two cores that others use too
NO_DATA = "needs FOCUSFL_DATA, a folder with the real data sets"
NO_PACKAGES = "needs packages that the script installs, or nbclient"
ADAPTERS = sorted((ROOT / "benchmarks/conformance").glob("*_side.py"))


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with this tree's focusfl."""
    ours = {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env=os.environ | ours, text=True,
        capture_output=True, timeout=SECONDS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the scripts and of the pages that they write."""
    place = tmp_path_factory.mktemp("copy")
    for folder in ("benchmarks", "experiments", "docs"):
        shutil.copytree(ROOT / folder, place / folder)
    return place


def changed(place: Path, since: float) -> list[Path]:
    """The files under a folder that hold something and were written since a time."""
    return [
        path
        for path in place.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if path.stat().st_mtime >= since and path.stat().st_size > 100
    ]


@pytest.mark.slow
@pytest.mark.parametrize("script", WHOLE)
def test_it_runs_in_small(script, copy):
    """Exit code 0, and figures: printed, all of them numbers, or in a file."""
    if script.endswith("notebooks.py") and not find_spec("nbclient"):
        pytest.skip(NO_PACKAGES)
    *before, arguments = CALLS.get(
        script, ["--quick" if "--quick" in (ROOT / script).read_text() else ""]
    )
    since = time.time()
    for command in (*before, f"{script} {arguments}"):
        done = run(copy, *command.split())
        if done.returncode == 2 and "FOCUSFL_DATA" in done.stderr:
            assert "Traceback" not in done.stderr
            pytest.skip(NO_DATA)
        assert done.returncode == 0, done.stderr[-3000:]
    printed = re.search(r"\d", done.stdout)
    assert printed or changed(copy, since), "neither a figure nor a file"
    assert not re.search(r"\bnan\b", done.stdout), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_it_says_what_it_does_and_refuses_what_it_does_not_know(script, copy):
    since = time.time()
    asked, wrong = run(copy, script, "--help"), run(copy, script, "--no-such-option")
    assert asked.returncode == 0 and asked.stdout.startswith("usage: ")
    assert wrong.returncode == 2 and "Traceback" not in wrong.stderr
    assert not changed(copy, since)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [path.stem for path in ADAPTERS])
def test_an_adapter_of_another_package_can_be_checked(adapter, copy):
    """Exit code 1 says that a row is not exact, which is found of some."""
    check = f"-m focusfl.cli check {adapter}:Scaffold --rows full".split()
    done = run(copy / "benchmarks/conformance", *check)
    if "ModuleNotFoundError" in done.stderr or "CONFORMANCE_CODE" in done.stderr:
        pytest.skip(NO_PACKAGES)
    assert done.returncode in (0, 1), done.stderr
    assert "behaves like" in done.stdout

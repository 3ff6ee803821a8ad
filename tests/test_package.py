"""What is shipped is whole: wheel and sdist hold what the tree holds."""

import ast
import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import focusfl as ff

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from hatchling import build; eval(sys.argv[1])(sys.argv[2])"


def in_git(*where: str) -> set[str]:
    """The files of the tree that git has, or will have: nothing that is ignored."""
    ask = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *where]
    found = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in found.stdout.splitlines() if (ROOT / name).exists()}


def built(kind: str, folder: Path) -> Path:
    """Build one of the two as `pip wheel` and `build` do, from what is here."""
    if not find_spec("hatchling"):
        pytest.skip("building needs hatchling: pip install --group tests")
    if not (ROOT / ".git").exists():
        pytest.skip("what belongs to the tree is known to git alone")
    build = [sys.executable, "-c", BUILD, f"build.build_{kind}", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    return file


def test_a_wheel_has_every_file_of_the_package_and_says_what_it_is(tmp_path):
    with zipfile.ZipFile(built("wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
        own = f"focusfl-{ff.__version__}.dist-info"
        about = email.message_from_bytes(wheel.read(f"{own}/METADATA"))
    code = {name.removeprefix("src/") for name in in_git("src")}
    assert {name for name in names if not name.startswith(own)} == code
    for needed in ("studies/shipped/new.toml", "deploy/template/keys.sh",
                   "studies/report/html/page.js", "studies/report/html/style.css"):  # fmt: skip
        assert f"focusfl/{needed}" in names
    assert f"{own}/licenses/LICENSE" in names and f"{own}/entry_points.txt" in names
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "Federated optimization" in about.get_payload()
    assert set(about.get_all("Provides-Extra")) >= {"flower", "plots", "graphs"}


def imported(file: Path) -> set[str]:
    """The top-level packages that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    members = [n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    return {name.split(".")[0] for name in (*plain, *members)}


def test_what_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = sum(project["optional-dependencies"].values(), project["dependencies"])
    declared = {re.split(r"[^\w.-]", need)[0].lower() for need in needs}
    files = (ROOT / "src").rglob("*.py")
    names = set().union(*map(imported, files)) - {"focusfl", *sys.stdlib_module_names}
    known = metadata.packages_distributions()  # by the name that is imported
    assert len(names) > 10
    for name in sorted(names):
        owners = {owner.lower().replace("_", "-") for owner in known.get(name, [name])}
        owners |= {owner.removesuffix("-skinny") for owner in owners}
        assert owners & declared, f"{name} is imported; pyproject.toml does not have it"


def test_classifiers_and_python_are_those_the_doctor_calls_tested():
    from focusfl.cli.doctor import TESTED

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"]]
    assert set(TESTED["python"]) == {each for each in named if "." in each}
    assert project["requires-python"] == f">={TESTED['python'][0]}"


def test_a_source_archive_has_all_that_its_tests_read(tmp_path):
    with tarfile.open(built("sdist", tmp_path)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert names - {"PKG-INFO"} == in_git()


TEXTS = [
    file
    for where in ("README.md", "CONTRIBUTING.md", "docs", "examples", "src")
    for file in ([ROOT / where] if "." in where else sorted((ROOT / where).rglob("*")))
    if file.suffix in {".md", ".py", ".toml", ".ipynb", ".sh"}
]


def test_nobody_is_told_to_install_what_is_not_published():
    """A name that pip would look for on an index; a folder or a file is found."""
    told = re.compile(r"pip install (?:-\S+ )*['\"]?focusfl(?!-[\d.]+-py3)")
    found = [str(file) for file in TEXTS if told.search(file.read_text())]
    assert len(TEXTS) > 150 and not found


def test_every_workflow_parses_and_calls_what_is_here():
    """The commands of CI are those of the repository, not others beside them."""
    for file in (ROOT / ".github" / "workflows").iterdir():
        jobs = yaml.safe_load(file.read_text())["jobs"].values()
        runs = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        assert "make test" in runs, file.name
        for script in (run.split()[0] for run in runs if run.startswith(".ci/")):
            assert os.access(ROOT / script, os.X_OK), script
            subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_who_cites_this_version_cites_its_number_and_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == ff.__version__ and cited["license"] == "Apache-2.0"
    assert cited["preferred-citation"]["url"].endswith("2503.20117")


def test_a_wheel_that_is_named_in_a_text_has_the_version_of_this_one():
    named = [v for f in TEXTS for v in re.findall(r"focusfl-([\d.]+)-", f.read_text())]
    assert named and set(named) == {ff.__version__}


@pytest.mark.slow
def test_the_readme_can_be_followed_from_the_wheel_in_a_fresh_venv(tmp_path):
    """What a release does first; it needs an index to install from, and minutes."""
    done = subprocess.run(
        [ROOT / ".ci" / "wheel", tmp_path],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("the README holds\n")

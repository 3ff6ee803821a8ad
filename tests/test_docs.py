"""What the pages say is true: their code runs, their links hold."""

import contextlib
import importlib
import inspect
import io
import json
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from test_declarations import forgets

import focusfl as ff
from focusfl.core.registry import ALGORITHMS, COMPRESSORS, PARTICIPATION, PROBLEMS, SCHEDULES

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").rglob("README.md")),
]
ONE_AFTER_THE_OTHER = (
    "add-a-problem.md", "add-a-participation.md", "my-pytorch-model.md",
)  # fmt: skip
# A child finds this Python first.
ENV = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


@contextlib.contextmanager
def quiet():
    """Let what Flower imports warn of itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def promised(code: str) -> str:
    """What a block says it prints: the comments that it ends with."""
    return re.sub("^# ", "", re.search(r"(^# .*\n)*\Z", code, re.M)[0], flags=re.M)


@pytest.fixture
def registries(monkeypatch):
    """Forget the parts that a page registers: other tests count those of the library."""
    assert ff.__all__ and ff.participation and ff.problems  # imported, and so registered, before
    for parts in (ALGORITHMS, COMPRESSORS, PARTICIPATION, PROBLEMS, SCHEDULES):
        monkeypatch.setattr(parts, "registered", parts.registered.copy())


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    if "focusfl.flower" in page.read_text():
        with quiet():
            importlib.import_module("focusfl.flower.strategy")
    for code in blocks(page, "python"):
        if page.name not in ONE_AFTER_THE_OTHER:
            names = {"__name__": "__main__"}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, page.name, "exec"), names)
        assert promised(code) in ("", out.getvalue())


def test_every_local_link_leads_somewhere():
    dead = [
        (str(page.relative_to(ROOT)), target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
        if not target.startswith("http") and not (page.parent / target).exists()
    ]
    assert not dead


def test_every_command_is_one_that_the_command_line_takes(capsys):
    from focusfl.cli import parser

    known = parser()
    for page in PAGES:
        text = "".join(blocks(page, "bash")).replace("\\\n", " ")
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["focusfl"]:
                try:
                    known.parse_args(words[1:])
                except SystemExit as stop:
                    assert stop.code == 0, f"{page.name}: {line}\n{capsys.readouterr().err}"


def test_a_first_study_goes_from_nothing_to_a_report(tmp_path, monkeypatch, capsys):
    from focusfl.cli import main

    monkeypatch.chdir(tmp_path)
    (first,) = [b for b in blocks(ROOT / "docs" / "start.md", "bash") if "new" in b]
    short = {"run": ["--set", "rounds=20", "--set", "seeds=1"]}
    for line in first.splitlines():
        _, command, *rest = shlex.split(line)
        assert main([command, *rest, *short.get(command, [])]) == 0, line
    assert "<html" in Path("report.html").read_text()


def api_pages():
    """The API pages as the site has them: entries of registered parts are made of the code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        filled = importlib.import_module("reference").filled
    pages = (page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    return "\n".join(map(filled, pages))


def test_the_readme_names_algorithms_that_exist_and_the_api_has_them_all():
    readme = (ROOT / "README.md").read_text()
    (row,) = re.findall(r"^\| algorithms \|.*$", readme, re.M)
    names = {kind.__name__ for kind in ff.ALGORITHMS.registered.values()}
    assert names >= set(re.findall(r"`(\w+)[`(]", row)) > {"Focus", "Scaffold", "FedAvg"}
    shown = set(re.findall(r"^::: focusfl\.algorithms\.(?:\w+\.)?(\w+)$", api_pages(), re.M))
    assert names <= shown


def test_the_page_on_departures_says_how_every_algorithm_lets_a_site_go():
    """The table is made of what `forget` does; test_leaving holds that it does it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        filled = importlib.import_module("reference").filled
    page = filled((ROOT / "docs" / "deploy.md").read_text())
    how = dict(re.findall(r"^\| `([^|]*)` \| ([^|]*) \|", page, re.M))
    lines = {name: words for names, words in how.items() for name in names.split("`, `")}
    assert lines["Focus"] == "its state is taken out of `y`"
    assert lines["Scaffnew"] == "a new generation begins"
    assert lines["FedAvg"] == "nothing is to be taken back"
    for name, kind in ff.ALGORITHMS.items():
        if name not in ("client_opt", "server_opt", "compressed", "stale"):
            words = lines[type(kind()).__name__]
            assert (words == "a new generation begins") == (not forgets(kind())), name


def test_every_make_target_in_the_readme_exists():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    named = re.findall(r"`?make (\w+)", (ROOT / "README.md").read_text())
    assert named and set(named) <= set(targets)


def test_importing_focusfl_does_not_import_jax():
    code = "import sys, focusfl; assert 'jax' not in sys.modules; focusfl.simulate"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    for name in ff.__all__:
        assert getattr(ff, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulatee'"):
        _ = ff.simulatee


def public(room) -> set[str]:
    """The names a room says it has, or else its own functions and classes."""
    mine = {
        name
        for name, value in vars(room).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(room.__name__)
    }
    return set(getattr(room, "__all__", mine))


def test_every_public_name_has_its_place_in_the_api_pages():
    with quiet():
        from focusfl import flower
        from focusfl.flower import protocol
    pages = api_pages()
    shown = set(re.findall(r"^::: ([\w.]+)$", pages, re.M))
    # Rooms and lists are named in the text; a function may share its module's name.
    shown |= {f"focusfl.{name}" for name in re.findall(r"`ff\.([\w.]+)`", pages)}
    shown |= {name.rpartition(".")[0] for name in shown}
    rooms = [ff.data, ff.mixing, ff.participation, ff.problems, ff.theory, flower]
    rooms += [ff.conformance, protocol]
    names = {f"{room.__name__}.{name}" for room in rooms for name in public(room)}
    compressors = {part.__name__ for part in ff.compression.COMPRESSORS.registered.values()}
    apart = {*public(ff.algorithms), *compressors}  # by the names of their own rooms
    names |= {f"focusfl.{name}" for name in ff.__all__ if name not in apart}
    names |= {f"focusfl.compression.{name}" for name in compressors}
    names |= {f"focusfl.algorithms.{name}" for name in public(ff.algorithms)}
    assert names - shown == set()


def test_pictures_are_small():
    for picture in PICTURES.iterdir():
        assert picture.suffix == ".svg" and picture.stat().st_size < 60_000, picture


@pytest.mark.parametrize("script", ["round", "participation"])
def test_pictures_are_what_their_scripts_draw(script, tmp_path):
    """Run in a copy: a script draws into the folder beside its own."""
    shutil.copytree(ROOT / "docs" / "draw", tmp_path / "draw")
    (tmp_path / "pictures").mkdir()
    program = [sys.executable, str(tmp_path / "draw" / f"{script}.py")]
    subprocess.run(program, check=True)
    drawn = list((tmp_path / "pictures").iterdir())
    assert len(drawn) >= 5
    for picture in drawn:
        assert picture.read_text() == (PICTURES / picture.name).read_text()


def rows(page: str) -> list[list[str]]:
    """The cells of every line of every table of a page, without emphasis."""
    lines = re.findall(r"^\| (.*) \|$", (ROOT / page).read_text(), re.M)
    return [[cell.strip(" *`") for cell in line.split("|")] for line in lines]


def mean(ends: str) -> float:
    """Of the runs that held."""
    held = [float(end) for end in ends.split(", ") if end.startswith(".")]
    return float(np.mean(held or 0))


def test_the_numbers_of_cifar10_are_those_of_its_runs_and_of_the_public_logs():
    script = runpy.run_path(str(ROOT / "experiments/cifar10/draw.py"))
    kept = json.loads((ROOT / "experiments/cifar10/results.json").read_text())
    lines = [[*line] for line in script["table"](kept["curves"])[1]]
    assert len(lines) == 25
    shown = rows("experiments/cifar10/README.md")
    assert [line for line in lines if line not in shown] == []
    chain = [[*line] for line in script["markov_table"](kept["curves"])[1]]
    assert len(chain) == 8 and [line for line in chain if line not in shown] == []
    again = {row[0].lower(): row[1:] for row in rows("docs/reproduction.md")}
    for name in ("focus", "fedavg", "fedau", "scaffold", "mifa"):
        own = [line for line in lines if line[0] == name]
        steps = {line[1]: line[-2] for line in own}
        tuned = {"fedau": "0.128"}.get(name, max(steps, key=lambda lr: mean(steps[lr])))
        ends = [steps["0.002"], steps[tuned]]
        assert again[name] == [*ends, script["PUBLISHED_FINAL"].get(name, "")]


def test_the_tables_of_the_suite_are_those_of_its_shipped_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "draw")
    script = runpy.run_path(str(ROOT / "docs" / "draw" / "suite.py"))
    assert script["text"]() in (ROOT / "docs" / "suite.md").read_text()


@pytest.mark.parametrize("name", ["ridge", "ridge-public-code", "quadratics"])
def test_the_tables_of_an_experiment_are_those_that_its_command_wrote(name):
    written = rows(f"experiments/{name}/table.md")
    assert len(written) > 20
    shown = rows(f"experiments/{name}/README.md")
    assert [row for row in written if row not in shown] == []


def test_the_table_of_natural_federations_is_what_the_packages_hold():
    script = runpy.run_path(str(ROOT / "docs" / "draw" / "federations.py"))
    shown = rows("docs/natural.md")
    for name in script["SAID"]:
        assert [cell.strip("`") for cell in script["row"](name)] in shown


def shell(page: str) -> list[str]:
    return blocks(ROOT / "docs" / page, "sh")


def test_the_cluster_page_gives_what_it_says_on_two_processes(tmp_path):
    """As on two hosts, on loopback; the scripts for Slurm are sound shell, no more."""
    page = ROOT / "docs" / "clusters.md"
    for script in shell("clusters.md"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    (program,) = blocks(page, "py")
    (tmp_path / "several.py").write_text(program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    (pair,) = [script for script in shell("clusters.md") if "9911" in script]
    done = subprocess.run(
        ["bash", "-eu", "-c", pair.replace("9911", port)],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "4 devices, exact", done.stderr
    assert "`4 devices, exact`" in page.read_text()


def test_the_array_job_runs_where_there_is_no_slurm(tmp_path):
    (job,) = [script for script in shell("clusters.md") if "--array" in script]
    short = "rounds = 3\nlr = 1e-4\n[problem]\nkind = 'ridge'\n"
    (tmp_path / "study.toml").write_text(short + "[participation.full]\n[algorithms.focus]\n")
    command = f'focusfl() {{ "{sys.executable}" -m focusfl.cli "$@"; }}\n'
    subprocess.run(["bash", "-eu", "-c", command + job], cwd=tmp_path, env=ENV, check=True)
    assert len(ff.Study.load(tmp_path / "runs" / "seed-0").table()) == 4


def public_functions():
    """The functions of the API pages that take so many arguments that one asks."""
    pages = api_pages()
    with quiet():
        for name in re.findall(r"^::: ([\w.]+)$", pages, re.M):
            room, _, last = name.rpartition(".")
            function = getattr(importlib.import_module(room), last)
            if inspect.isfunction(function):
                parameters = list(inspect.signature(function).parameters)
                if len(parameters) >= 4:
                    yield name, function, parameters


def arguments(function) -> set[str]:
    """The arguments that a docstring has something to say of, or those it refers to."""
    text = inspect.getdoc(function) or ""
    found = re.search(r"^Args:\n((?: .*\n?)+)", text, re.M)
    named = set(re.findall(r"^    (\w+): ", found[1], re.M)) if found else set()
    return named | (arguments(ff.simulate) if "as in `simulate`" in text else set())


def test_every_public_function_of_four_arguments_names_each_of_them():
    lacking = {
        name: absent
        for name, function, parameters in public_functions()
        if (absent := set(parameters) - arguments(function))
    }
    assert not lacking


def test_a_study_of_ones_own_runs_from_the_page_alone(tmp_path):
    for kind, name in (("python", "mine.py"), ("toml", "study.toml")):
        first, _ = blocks(ROOT / "docs" / "bring-your-own.md", kind)
        (tmp_path / name).write_text(first)
    done = subprocess.run(
        [sys.executable, "-m", "focusfl.cli", "run", "study.toml", "--json"],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["runs"]
    assert {row["algorithm"] for row in rows} == {"fedavg", "half_way"}
    assert len(rows) == 6 and all(row["verdict"] != "diverged" for row in rows)
    manifest = json.loads((tmp_path / "runs/study/manifest.json").read_text())
    assert manifest["parts"]["mine:HalfWay"]["file"] == "mine.py"


def test_a_network_of_pytorchs_runs_from_the_page_alone(tmp_path):
    for kind, name in (("python", "net.py"), ("toml", "study.toml")):
        _, second = blocks(ROOT / "docs" / "bring-your-own.md", kind)
        (tmp_path / name).write_text(second)
    smaller = [
        "rounds=2",
        "seeds=1",
        "eval_every=1",
        "problem.width=1",
        "local_steps=1",
    ]
    # All six programs take a minute to compile; one shows that the files fit.
    done = subprocess.run(
        [sys.executable, "-m", "focusfl.cli", "run", "study.toml", "--json",
         "--algorithms", "focus", "--participation", "coins",
         *(word for change in smaller for word in ("--set", change))],
        cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["runs"]
    assert row["measure"] == "loss" and 0 < row["error"] < 3

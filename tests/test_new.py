"""What `focusfl new` writes works as it is: a study, and packages with a part."""

import os
import subprocess
import sys

import pytest

from focusfl.cli import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("what", ["algorithm", "participation", "problem"])
def test_a_package_passes_its_own_test_once_it_is_installed(here, what):
    assert main(["new", what, "my_part"]) == 0
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--target", "site", "./my_part"]
    subprocess.run([*pip, *offline], check=True, timeout=300)
    paths = filter(None, (str(here / "site"), os.environ.get("PYTHONPATH")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "my_part/tests"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words, message",
    [
        (["algorithm"], "needs a name, as in focusfl new algorithm my_algorithm"),
        (["algorithm", "Mine"], "lower-case letters, digits and underscores"),
        (["problem", "a/b"], "got 'a/b'"),
        (["algorithm", "focus"], "algorithm 'focus' exists already"),
        (["algorithm", "numpy"], "'numpy' is a word or a module of Python already"),
        (["participation", "class"], "'class' is a word"),
        (["algorithm", "taken"], "taken exists; choose another name"),
        (["study.toml", "mine"], "takes no name; got 'mine'"),
        (["theorem", "mine"], "For a part of your own say algorithm, participation, problem"),
    ],
)
def test_a_bad_name_is_one_clear_line_and_writes_nothing(here, capsys, words, message):
    (here / "taken").mkdir()
    assert main(["new", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert os.listdir(here) == ["taken"] and not os.listdir(here / "taken")

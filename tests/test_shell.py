"""`focusfl doctor` on this machine, and completion in the shells that it has."""

import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from command_line import in_a_process, in_process

from focusfl import cli, data
from focusfl.cli import completion, doctor


def test_a_healthy_machine_works_without_data(tmp_path):
    done = in_a_process(
        "doctor", "--json", FOCUSFL_DATA=str(tmp_path / "a"),
        FOCUSFL_CACHE=str(tmp_path / "b"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "c"),
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["works"], done.stderr
    assert found["versions"]["jax"] == metadata.version("jax")
    assert found["a run"]["error"] < 1e-12
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["caches"]["folder"] == str(tmp_path / "b")
    assert found["caches"]["compiled programs"].startswith(f"{tmp_path / 'c'} (")
    assert found["data"].pop("FOCUSFL_DATA") == str(tmp_path / "a")
    fetched = [name for name, entry in data.DATA_SETS.items() if not entry.package]
    assert found["data"] == dict.fromkeys(fetched)


def test_a_version_that_was_not_tested_is_named():
    needed = {"jax": "0.10.7", "numpy": "9.0"}
    found = doctor.untested(needed, {"flwr": "1.43.0", "uvicorn": None})
    assert found == {"flwr 1.43.0": "tested with 1.41, 1.42"}
    assert doctor.untested({"flwr": "1.42.1"}) == doctor.untested({"flwr": None}) == {}


def test_a_broken_jax_is_found_out(tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('no driver\\nat all')")
    done = in_a_process("doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith("focusfl does not work here: ImportError: no driver")


def test_a_missing_extra_is_named(monkeypatch, capsys, tmp_path):
    def version(package, real=metadata.version):
        if package == "networkx":
            raise metadata.PackageNotFoundError
        return real(package)

    def needs(package):
        return ["numpy>=2", "networkx>=3; extra == 'graphs'"]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", needs)
    monkeypatch.setenv("FOCUSFL_DATA", str(tmp_path))
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "a9a.txt").touch()
    monkeypatch.setattr(doctor, "_run", lambda: {"error": 0.0})
    assert cli.main(["doctor"]) == 0
    said = " ".join(capsys.readouterr().out.split())  # long lines go on in the next
    assert "extra graphs missing: networkx machine" in said
    assert re.search(rf"data FOCUSFL_DATA {tmp_path}, a9a {tmp_path}\S*; not fetched: .*w8a", said)
    assert said.endswith(
        "focusfl works; without extras, installed in a clone of focusfl: pip install '.[graphs]'"
    )


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The scripts, in a folder with two studies."""
    folder = tmp_path_factory.mktemp("shell")
    for name in completion.SHELLS:
        (folder / name).write_text(in_process("completion", name).stdout)
    for name in ("study.toml", "my study.toml"):
        (folder / name).touch()
    (folder / "runs").mkdir()
    return folder


WITH_FOCUSFL = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
LINES = {
    "focusfl rep": {"report", "reproduce"},
    "focusfl deploy ": {
        "local",
        "init",
        "status",
        "watch",
        "keys",
        "open",
        "stop",
        "certificates",
    },
    "focusfl deploy local --t": {"--target", "--tls"},
    "focusfl run st": {"study.toml"},
    "focusfl run --out ru": {"runs"},
    "focusfl run study.toml --re": {"--resume"},
    "focusfl plot runs --x s": {"seconds", "step-size"},
    "focusfl reproduce r": {"ridge", "ridge-public-code"},
    "focusfl reproduce cifar10 --fr": {"--fresh"},
    "focusfl check mine:Mine --rows s": {"sizes", "steps"},
    "focusfl completion ": {"bash", "zsh", "fish"},
}


def in_bash(scripts, line):
    """What bash itself would offer at the end of a line."""
    code = (
        f"source ./bash; COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}; "
        "COMP_TYPE=9; _python_argcomplete focusfl; "
        '[[ "${COMPREPLY[*]}" ]] && printf "%s\\n" "${COMPREPLY[@]}"; '
        "complete -p focusfl"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], cwd=scripts, capture_output=True, text=True,
        env=WITH_FOCUSFL,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    *offered, registered = done.stdout.splitlines()
    assert registered.endswith("-F _python_argcomplete focusfl")
    return {each.rstrip().rstrip("/") for each in offered}


@pytest.mark.parametrize("line", LINES)
def test_bash_offers_what_can_come_next(line, scripts):
    assert in_bash(scripts, line) == LINES[line]


@pytest.mark.needs("fish")
def test_fish_offers_what_can_come_next(scripts):
    for line, expected in LINES.items():
        code = f"source fish; complete -C {shlex.quote(line)}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code], cwd=scripts, capture_output=True,
            text=True, env=WITH_FOCUSFL,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        lines = done.stdout.splitlines()
        assert {each.partition("\t")[0].rstrip("/") for each in lines} == expected, line


def read_until(terminal, word):
    """Read what a terminal shows until there is a word."""
    seen = b""
    while word not in seen:
        assert select.select([terminal], [], [], 60)[0], seen
        seen += os.read(terminal, 1000)


@pytest.mark.needs("zsh")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("focusfl repr", "focusfl reproduce "),
        ("focusfl deploy local --tl", "focusfl deploy local --tls "),
        ("focusfl run stu", "focusfl run study.toml "),
        ("focusfl plot runs --x sec", "focusfl plot runs --x seconds "),
    ],
)
def test_zsh_completes(typed, line, scripts, tmp_path):
    """In a terminal of its own: type, press Tab, and look at the line."""
    out = tmp_path / "line"
    (tmp_path / ".zshrc").write_text(
        f"PS1='ready>'; source {scripts}/zsh; cd {scripts}\n"
        f'note() {{ print -r -- "$BUFFER" > {out}; exit }}\n'
        "zle -N note; bindkey '^X' note\n"
    )
    terminal, inside = pty.openpty()
    env = WITH_FOCUSFL | {"ZDOTDIR": str(tmp_path), "TERM": "dumb"}
    with subprocess.Popen(
        ["zsh", "-i"], stdin=inside, stdout=inside, stderr=inside, env=env,
        start_new_session=True,
    ) as process:  # fmt: skip
        os.close(inside)
        try:
            read_until(terminal, b"ready>")
            os.write(terminal, typed.encode() + b"\t\x18")
            process.wait(60)
        finally:
            process.kill()
            os.close(terminal)
    assert out.read_text() == line + "\n"


def test_completion_is_quick_and_an_unknown_shell_a_line():
    code = "import sys; from focusfl.cli import main; main(['completion', 'bash']); "
    done = subprocess.run(
        [sys.executable, "-c", code + "print(*sys.modules)"], capture_output=True,
        text=True,
    )  # fmt: skip
    slow = {"jax", "flwr", "torch", "matplotlib", "pandas", "pyarrow", "pydantic"}
    assert not slow & set(done.stdout.splitlines()[-1].split())
    done = in_process("completion", "bsh")
    assert done.returncode == 2
    assert done.stderr == (
        "focusfl: unknown shell: 'bsh'. Did you mean 'bash'? Known: bash, fish, zsh.\n"
    )

"""What a first use costs: imports come late, and compiled programs are kept."""

import json
import subprocess
import sys

import jax
import pytest

import focusfl as ff
from focusfl.core import compilation

NAMES = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture
def unconfigured(monkeypatch, tmp_path):
    """jax as it is before anybody configured it, and a cache folder of its own."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", True)
    monkeypatch.setenv("FOCUSFL_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "jax"
    for name, value in before.items():
        jax.config.update(name, value)


def run_in_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "code",
    ["import focusfl", "from focusfl.cli import main; main(['--version'])"],
    ids=["import", "command"],
)
def test_neither_numpy_nor_jax_is_imported_before_it_is_needed(code):
    code = f"import json, sys\ntry:\n {code}\nexcept SystemExit: pass\n"
    loaded = json.loads(
        run_in_python(code + "print(json.dumps(list(sys.modules)))").splitlines()[-1]
    )
    assert not {"numpy", "jax", "torch", "pydantic", "rich"} & set(loaded)


def test_every_public_name_is_there_and_listed():
    for name in ff.__all__:
        assert getattr(ff, name) is not None, name
    assert set(dir(ff)) == {*ff.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'Fcous'"):
        ff.Fcous  # noqa: B018


def test_a_run_uses_the_cache_of_the_user(unconfigured):
    problem = ff.problems.random_quadratic(num_clients=2, dim=2)
    ff.simulate(ff.Focus(), problem, ff.participation.Full(), rounds=1, lr=0.1)
    assert jax.config.jax_compilation_cache_dir == str(unconfigured)
    assert jax.config.jax_compilation_cache_max_size == compilation.COMPILED_BYTES
    assert unconfigured.stat().st_mode & 0o077 == 0  # nobody else may write programs


def test_a_configured_cache_is_left_alone(unconfigured, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    assert compilation.use_compilation_cache() == tmp_path / "mine"
    jax.config.update("jax_compilation_cache_dir", "")
    assert compilation.use_compilation_cache() is None
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", False)
    assert compilation.use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None
    assert not unconfigured.exists()


def test_a_folder_that_cannot_be_written_is_no_error(unconfigured, monkeypatch, tmp_path, recwarn):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FOCUSFL_CACHE", str(tmp_path / "file"))
    assert compilation.use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None and not recwarn.list


def test_the_folder_is_the_one_of_the_platform(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    for name in ("FOCUSFL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert str(compilation.cache_folder()) == "/home/ada/.cache/focusfl"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert str(compilation.cache_folder()) == "/home/ada/Library/Caches/focusfl"
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert str(compilation.cache_folder()) == "/scratch/focusfl"
    monkeypatch.setenv("FOCUSFL_CACHE", "~/mine")
    assert str(compilation.cache_folder()) == "/home/ada/mine"

import ast
import os
import tomllib

import pytest
from command_line import in_process

from focusfl.deploy import apps


def test_init_writes_an_app_that_is_whole(tmp_path):
    files = apps.init(tmp_path / "mine")
    names = {str(file.relative_to(tmp_path / "mine")) for file in files}
    code = {f"training/{n}.py" for n in ("__init__", "task", "client_app", "server_app")}
    rest = {"README.md", "keys.sh", "pyproject.toml", ".gitignore"}
    assert names == rest | code
    for file in files:
        if file.suffix == ".py":
            ast.parse(file.read_text())
    assert os.access(tmp_path / "mine" / "keys.sh", os.X_OK)
    project = tomllib.loads((tmp_path / "mine" / "pyproject.toml").read_text())
    parts = project["tool"]["flwr"]["app"]["components"]
    for component in parts.values():
        module = component.split(":")[0].replace(".", "/") + ".py"
        assert module in names
    assert apps.settings(tmp_path / "mine")["job"] == "training"
    with pytest.raises(ValueError, match="new or empty"):
        apps.init(tmp_path / "mine")


def test_what_is_no_app_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folder of a Flower app"):
        apps.settings(tmp_path)


SERVER = """
import numpy as np
from focusfl import Focus
from focusfl.flower import Job, server_app

def job(context):
    sites = tuple(context.run_config.get("sites", "rome oslo").split())
    return Job(Focus(), {"x": np.zeros(2)}, sites, 5, 0.1, "~/far", job="mine")

app = server_app(job)
"""


def own_app(folder, server, config=""):
    """Write an app with a server app of its own."""
    apps.init(folder)
    (folder / "training" / "server_app.py").write_text(server)
    text = (folder / "pyproject.toml").read_text()
    head = text[: text.index("[tool.flwr.app.config]")]
    (folder / "pyproject.toml").write_text(head + config)
    return folder


def test_settings_that_an_app_does_not_name_are_those_of_its_job(tmp_path):
    app = own_app(tmp_path / "app", SERVER)
    assert apps.settings(app) == {}
    known = {"job": "mine", "sites": "rome oslo", "rounds": 5}
    assert apps.settings_with_job(app) == known
    config = '[tool.flwr.app.config]\nsites = "a b c"\nown = 1\n'
    app = own_app(tmp_path / "more", SERVER, config)
    assert apps.settings_with_job(app) == {**known, "sites": "a b c", "own": 1}


def test_settings_are_added_to_an_app_with_and_without_some(tmp_path):
    config = "[tool.flwr.app.config]\nrounds = 3  # few\n"
    for name, had in (("bare", ""), ("some", config)):
        app = own_app(tmp_path / name, SERVER, had)
        before = apps.settings(app)
        apps.add_settings(app, {"folder": 'a "b"', "rounds": 9})
        assert apps.settings(app) == {"folder": 'a "b"', "rounds": 9, **before}


def test_an_app_whose_sites_nobody_knows_is_refused_in_one_line(tmp_path):
    server = "from flwr.serverapp import ServerApp\napp = ServerApp()\n"
    app = own_app(tmp_path / "app", server)
    done = in_process("deploy", "local", "app", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert 'sites = "site-0 site-1"' in done.stderr and "Job" in done.stderr
    (app / "training" / "server_app.py").write_text("import nonsense_of_mine\n")
    done = in_process("deploy", "local", "app", cwd=tmp_path)
    assert done.returncode == 2 and "nonsense_of_mine" in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()

import ast
import os
import tomllib

import pytest

from focusfl.deploy import apps


def test_init_writes_an_app_that_is_whole(tmp_path):
    files = apps.init(tmp_path / "mine")
    names = {str(file.relative_to(tmp_path / "mine")) for file in files}
    code = {
        f"training/{n}.py" for n in ("__init__", "task", "client_app", "server_app")
    }
    rest = {"README.md", "keys.sh", "nginx.conf", "pyproject.toml", ".gitignore"}
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

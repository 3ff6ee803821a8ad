"""What an editor knows: the states of an algorithm have their own fields."""

from pathlib import Path

import pytest

import focusfl as ff

api = pytest.importorskip("mypy.api")

CODE = """
import focusfl as ff

how = {problem}, {who}
result = ff.simulate(ff.Focus(), *how, rounds=2, lr=0.1)
reveal_type(result.clients)
reveal_type(ff.loop(ff.Scaffold(), *how, rounds=2, lr=0.1).server)
result.server.momentum
""".format(problem="ff.problems.ridge()", who="ff.participation.Full()")


def test_states_are_typed(tmp_path, request):
    """Where they are not, everything is Any, and a misspelt field passes."""
    file = tmp_path / "editor.py"
    file.write_text(CODE)
    cache = Path(request.config.rootpath, ".mypy_cache")
    said, _, _ = api.run([str(file), "--cache-dir", str(cache), "--no-error-summary"])
    clients, scaffold, wrong = said.splitlines()
    assert "focusfl.algorithms.focus.Client" in clients
    assert "focusfl.algorithms.scaffold.Server" in scaffold
    assert 'error: "Server" has no attribute "momentum"' in wrong


def test_every_list_of_algorithms_has_them_all():
    """Spelled out for editors, which do not compute lists."""
    names = {kind.__name__ for kind in ff.ALGORITHMS.values()}
    assert names == set(ff.algorithms.__all__) - {"ALGORITHMS"}
    assert names <= set(ff.__all__)

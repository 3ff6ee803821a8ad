"""What mypy says of the code, and what an editor knows by it."""

import subprocess
import sys
from pathlib import Path

import focusfl as ff

ROOT = Path(__file__).parent.parent

CODE = """
import focusfl as ff

how = {problem}, {who}
result = ff.simulate(ff.Focus(), *how, rounds=2, lr=0.1)
reveal_type(result.clients)
reveal_type(ff.loop(ff.Scaffold(), *how, rounds=2, lr=0.1).server)
result.server.momentum
""".format(problem="ff.problems.ridge()", who="ff.participation.Full()")


def test_the_code_has_no_error_and_states_have_types(tmp_path):
    """Where states have none, everything is Any, and a misspelt field passes."""
    file = tmp_path / "editor.py"
    file.write_text(CODE)
    mypy = [sys.executable, "-m", "mypy", "src", str(file), "--no-error-summary"]
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.count("\n") == 3, done.stdout + done.stderr  # of the file alone
    clients, scaffold, wrong = done.stdout.splitlines()
    assert "focusfl.algorithms.focus.Client" in clients
    assert "focusfl.algorithms.scaffold.Server" in scaffold
    assert 'error: "Server" has no attribute "momentum"' in wrong


def test_every_algorithm_has_a_name_that_can_be_imported():
    for name, algorithm in ff.ALGORITHMS.registered.items():
        assert getattr(ff, algorithm.__name__) is algorithm is ff.ALGORITHMS[name]
        assert algorithm.__name__ in ff.__all__ and algorithm.__name__ in dir(ff)

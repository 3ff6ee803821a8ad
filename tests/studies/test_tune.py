"""`focusfl tune`: the best of the steps that were tried, and none left untried."""

import json

import pytest
from command_line import in_process

STUDY = """
rounds = 60
lr = {lr}
local_steps = 2
seeds = 2

[problem]
kind = "random_quadratic"
num_clients = 4
dim = 3

[participation.some]
kind = "bernoulli"
p = 0.6

[algorithms.focus]
[algorithms.fedavg]
"""


@pytest.fixture
def tuned(tmp_path):
    def call(lr, *more):
        (tmp_path / "study.toml").write_text(STUDY.format(lr=lr))
        file, out = tmp_path / "study.toml", tmp_path / "out"
        return in_process("tune", file, "--out", out, *more)

    return call


def test_the_best_step_is_inside_of_what_was_tried_wherever_it_began(tuned):
    found = {}
    for lr in (0.001, 0.512):  # too small, and so large that runs diverge
        done = tuned(lr, "--json")
        assert done.returncode == 0, done.stderr
        for one in json.loads(done.stdout):
            assert one["tried"][0] < one["lr"] < one["tried"][-1]
            steps = one["tried"]
            assert steps == [steps[0] * 2**k for k in range(len(steps))]
            found.setdefault(one["algorithm"], []).append(one["lr"])
    assert found["focus"][0] == pytest.approx(found["focus"][1])
    assert found["fedavg"][0] == pytest.approx(found["fedavg"][1])


def test_it_says_what_to_write_and_runs_nothing_twice(tuned, tmp_path):
    first = tuned(0.016, "--algorithms", "focus")
    assert "--set algorithms.focus.lr=" in first.stdout
    kept = {file: file.stat().st_mtime for file in tmp_path.glob("out/runs/*.parquet")}
    assert kept
    assert tuned(0.016, "--algorithms", "focus").stdout == first.stdout
    again = {file: file.stat().st_mtime for file in tmp_path.glob("out/runs/*.parquet")}
    assert again == kept


def test_steps_that_never_get_better_end_in_one_line(tuned):
    done = tuned(1e-9, "--algorithms", "fedavg", "--set", "rounds=9")
    assert done.returncode == 2 and done.stderr.count("no best step size") == 1

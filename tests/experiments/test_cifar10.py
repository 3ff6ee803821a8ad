"""The study of CIFAR-10: what its command changes, and what its script makes of it."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process

import focusfl as ff
from focusfl.problems import PROBLEMS
from focusfl.studies import spec, store

ROOT = Path(__file__).parents[2]
EASY = "--set rounds=20 --set eval_every=4 --set seeds=[66,67] --participation".split()


@pytest.fixture(scope="module")
def tiny():
    """A stand-in for the problem: softmax regression of four random rows a client."""
    rng = np.random.default_rng(0)

    def draw(count):
        x = rng.normal(0, 30, (count, 2)).astype(np.float32)
        return {"x": x, "y": rng.integers(0, 2, count, dtype=np.int32)}

    clients, held = [draw(4) for _ in range(32)], draw(10)

    def stand_in(num_clients=32, alpha=0.05, batch_size=128, seed=66,
                 compute_dtype=None):  # fmt: skip
        assert (num_clients, alpha, batch_size, seed) == (32, 0.05, 128, 66)
        return ff.problems.softmax(
            clients, classes=2, eval_data=held, batch_size=4, stream="fixed_order",
            compute_dtype=compute_dtype,
        )  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROBLEMS.registered, "cifar10", stand_in)
        yield


@pytest.fixture(scope="module")
def ran(tiny, tmp_path_factory):
    """Two folders, as of two machines: one algorithm each."""
    place = tmp_path_factory.mktemp("ran")
    for name in ("focus", "mifa"):
        done = asked(place / name, *EASY, "bernoulli", "--algorithms", name, "--quiet")
        assert done.returncode == 0, done.stderr
    return place


def asked(out, *more):
    return in_process("reproduce", "cifar10", "--out", out, *more)


def test_seeds_and_steps_of_an_algorithm_are_one_group_and_are_not_run_again(ran):
    found = store.Study.load(ran / "mifa")
    assert {(r.row["lr"], r.row["seed"]) for r in found.runs} == {
        (lr, seed) for lr in (2e-3, 0.128) for seed in (66, 67)
    }
    assert {r.row["participation"] for r in found.runs} == {"bernoulli"}
    assert {r.row["measure"] for r in found.runs} == {"loss"}
    files = sorted(path.suffix for path in (ran / "mifa/runs").iterdir())
    assert files == ["", ".parquet"]  # its lock, and one group; no checkpoint is left
    again = asked(ran / "mifa", *EASY, "bernoulli", "--algorithms", "mifa")
    assert "nothing was left to run" in again.stdout, again.stderr
    (run, _) = store.Study.load(ran / "focus").runs
    assert run.row["tracking_gap"] < 1e-5


def test_an_option_changes_the_study_and_so_does_a_setting(tiny, tmp_path):
    done = asked(
        tmp_path, *EASY, "markov", "--algorithms", "focus", "--set",
        "algorithms.focus.lr=0.5", "--set", "problem.compute_dtype=bfloat16", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    study = json.loads((tmp_path / "manifest.json").read_text())["study"]
    assert study["algorithms"] == {"focus": {"memory": "last", "lr": 0.5}}
    assert list(study["participation"]) == ["markov"]
    assert study["problem"]["compute_dtype"] == "bfloat16"
    assert (study["rounds"], study["eval_every"], study["seeds"]) == (20, 4, [66, 67])


@pytest.mark.parametrize(
    "options, told",
    [
        (["--participation", "markof"], "Did you mean 'markov'"),
        (["--algorithms", "focs"], "Did you mean 'focus'"),
        (["--set", "rounds=0"], "rounds must be a whole number"),
        (["--set", "problem.compute_dtype=float3"], "compute_dtype"),
    ],
)
def test_bad_input_is_one_line(options, told, tiny, tmp_path):
    done = asked(tmp_path / "out", *options)
    assert done.returncode == 2 and told in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_chances_are_those_of_the_paper(tiny):
    study = spec.load(spec.STUDIES / "cifar10.toml")
    coins, chain = (study.participation[k].participation for k in study.participation)
    p = np.asarray(coins.p)
    rng = ff.core.random.rng(66, "cifar10", "chances")
    often = rng.uniform(0.1, 0.9, 4)
    assert p == pytest.approx([*rng.uniform(0.1, 0.3, 28), *often], abs=0)
    assert chain.marginals(32).p == pytest.approx(p)
    assert np.asarray(chain.wake) == pytest.approx(p / 4)


def test_the_script_makes_a_table_of_several_folders(ran):
    script = runpy.run_path(str(ROOT / "experiments/cifar10/draw.py"))
    found = script["gathered"]([ran / "focus", ran / "mifa"])
    heads, lines = script["table"](json.loads(json.dumps(found))["curves"])
    assert [line[:2] for line in lines] == [
        ("focus", "0.002"), ("mifa", "0.002"), ("mifa", "0.128")
    ]  # fmt: skip
    ends = [
        np.mean(curve["accuracy"][1:][-10:])
        for curve in found["curves"] if curve["run"]["algorithm"] == "focus"
    ]  # fmt: skip
    assert len(ends) == 2  # seeds
    shown = lines[0][heads.index("final")].split(", ")
    assert [float(end) for end in shown] == pytest.approx(ends, abs=6e-4)
    found["curves"][0]["diverged_at"] = 4
    lines = script["table"](found["curves"])[1]
    assert lines[0][heads.index("final")].startswith("†4, ")
    assert len(script["accuracy_figure"](found["curves"]).axes) == 2

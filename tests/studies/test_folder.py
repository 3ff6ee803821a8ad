"""Studies in folders: finished once, killed at any time, continued."""

import json
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import ENDED

import focusfl as ff
from focusfl.core.models import read_model
from focusfl.simulation import callbacks as stop
from focusfl.simulation import devices as placement
from focusfl.simulation import runner as simulation
from focusfl.studies import runner, spec, store

STUDY = """
rounds = 400
lr = [1e-3, 2e-3]
local_steps = 2
seeds = 2

[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12

[participation.some]
kind = "bernoulli"
p = 0.4

[algorithms.focus]

[algorithms.scaffold]

[algorithms.fedavg]
"""


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    return file


def complete(study, out, *changes, **how):
    ran = []
    found = runner.run_in_folder(spec.load(study, changes), out, finished=ran.extend, **how)
    return found, ran


def same(a, b):
    """The curves of two tables, but for the seconds, to the bit."""
    assert len(a) == len(b)
    for column in set(a.columns) - {"seconds"}:
        assert np.array_equal(a[column], b[column]), column


def test_runs_equal_the_library_and_are_read_back(study, tmp_path):
    found, ran = complete(study, tmp_path / "out")
    assert len(found.runs) == len(ran) == 12
    table = ff.Study.load(tmp_path / "out").table()
    assert list(table.columns[:5]) == list(store.IDENTITY)
    assert len(table) == 12 * 401
    for run in found.runs:
        row = run.row
        mine = table[
            (table["algorithm"] == row["algorithm"])
            & (table["lr"] == row["lr"])
            & (table["seed"] == row["seed"])
        ]
        expected = ff.simulate(
            ff.ALGORITHMS[row["algorithm"]](),
            ff.problems.ridge(num_clients=4, dim=6, rows=12),
            ff.participation.Bernoulli(0.4),
            rounds=400, lr=row["lr"], local_steps=2, seed=row["seed"],
        )  # fmt: skip
        np.testing.assert_allclose(
            mine["distance"], expected.metrics["distance"], rtol=1e-9, atol=1e-13
        )
        sent = np.cumsum(expected.metrics["down"] + expected.metrics["up"])
        assert np.array_equal(mine["vectors_sent"], sent)
        assert np.array_equal(run.curves["distance"], mine["distance"])
        assert row["gradients"] == 2 * sum(
            len(ids)
            for ids in ff.participation.schedule(
                ff.participation.Bernoulli(0.4), 4, 400, row["seed"]
            )
        )
    who, when = found.participants["some"][1], found.participants["some"][0]
    masks = ff.participation.masks(ff.participation.Bernoulli(0.4), 4, 400, 0)
    assert np.array_equal(np.argwhere(masks), np.stack([when, who], 1))
    scenario = found.manifest["scenarios"]["some"]
    assert scenario["p"] == [0.4] * 4 and found.manifest["problem"]["size"] == 6


def test_what_is_finished_is_not_run_again_and_what_is_new_is(study, tmp_path):
    first, ran = complete(study, tmp_path / "out")
    again, ran = complete(study, tmp_path / "out")
    assert ran == []
    same(*(ff.Study.load(f.folder).table() for f in (first, again)))
    _, ran = complete(study, tmp_path / "out", "seeds=3", "lr=[1e-3, 4e-3]")
    assert sorted({(run.row["lr"], run.row["seed"]) for run in ran}) == [
        (1e-3, 2), (4e-3, 0), (4e-3, 1), (4e-3, 2),
    ]  # fmt: skip
    assert len(ran) == 12
    _, ran = complete(study, tmp_path / "out", "problem.penalty=0.5")
    assert len(ran) == 12
    _, ran = complete(study, tmp_path / "out", fresh=True)
    assert len(ran) == 12


def test_what_cannot_be_stated_of_a_scene_is_said_before_anything_runs(
    study, tmp_path, monkeypatch
):
    def marginals(self, num_clients):
        raise ValueError("too many clients to state how often each takes part.")

    first, _ = complete(study, tmp_path / "out")
    before = sorted((tmp_path / "out/runs").iterdir())
    monkeypatch.setattr(ff.participation.Bernoulli, "marginals", marginals)
    ran = []
    with pytest.raises(ValueError, match="too many clients"):
        runner.run_in_folder(
            spec.load(study, ["seeds=3"]), tmp_path / "out", finished=ran.extend,
            fresh=True,
        )  # fmt: skip
    assert not ran and sorted((tmp_path / "out/runs").iterdir()) == before


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "study.toml").write_text(STUDY)
    return complete(folder / "study.toml", folder / "out", "rounds=20_000")[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_study_killed_at_any_time_goes_on_and_ends_the_same(
    workers, study, tmp_path, never_killed
):
    """Twelve cells, killed -9 after the first have ended."""
    command = [
        sys.executable, "-m", "focusfl.cli", "run", str(study), "--set",
        "rounds=20_000", "--out", str(tmp_path / "cut"),
        *(["--workers", str(workers)] if workers else []),
    ]  # fmt: skip
    cells = tmp_path / "cut" / "runs"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as running:
        while running.poll() is None and not list(cells.glob("*.parquet")):
            time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
    left = ["pgrep", "-r", "R,S,D", "-g", str(running.pid)]
    limit = time.monotonic() + 120
    while subprocess.run(left, stdout=subprocess.DEVNULL).returncode == 0:
        assert time.monotonic() < limit, "what it had started lives on"
        time.sleep(0.02)
    before = {file.name for file in cells.glob("*.parquet")}
    assert 0 < len(before) < 3 and "runs" not in store.manifest_so_far(tmp_path / "cut")
    listed = store.Folder(tmp_path / "cut", store.manifest_so_far(tmp_path / "cut"))
    kept = [
        run.row["key"] for name in listed.files if name.endswith(".parquet")
        for run in listed.read_runs(name.removesuffix(".parquet"))
    ]  # fmt: skip
    done = subprocess.run(
        [*command, "--resume", "--json"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["runs"]
    assert set(kept) <= {row["key"] for row in rows} and len(rows) == 12
    groups = sum(name.endswith(".parquet") for name in listed.files)
    assert len(ENDED.findall(done.stderr)) == 3 - groups  # of each that ran
    same(ff.Study.load(never_killed.folder).table(), ff.Study.load(tmp_path / "cut").table())


def test_runs_stop_when_they_have_done_enough(study, tmp_path):
    found, _ = complete(study, tmp_path / "a", "stop.tolerance=1e-6")
    for run in found.runs:
        error, exact = run.curves["distance"], run.row["algorithm"] != "fedavg"
        if exact and run.row["rounds"] < 400:
            assert error[-1] <= 1e-6 < error[:-1].min()
    assert min(run.row["rounds"] for run in found.runs) < 400
    found, _ = complete(study, tmp_path / "b", "stop.vectors=100")
    for run in found.runs:
        sent = run.curves["vectors_sent"]
        assert sent[-1] >= 100 > sent[-2] and run.row["rounds"] < 400
    found, _ = complete(study, tmp_path / "c", "stop.seconds=1e-3", "rounds=100_000")
    assert max(run.row["rounds"] for run in found.runs) < 100_000


def test_any_metric_may_end_a_run(study, tmp_path):
    found, _ = complete(study, tmp_path / "out", "stop.below={grad_norm=0.5}", "eval_every=3")
    ended = [run for run in found.runs if run.row["rounds"] < 400]
    assert ended
    for run in ended:
        norm = run.curves["grad_norm"]
        assert norm[-1] <= 0.5 < norm[:-1].min() and run.row["rounds"] % 3 == 0


def test_only_rounds_that_were_evaluated_are_kept(study, tmp_path):
    whole, _ = complete(study, tmp_path / "whole")
    some, _ = complete(study, tmp_path / "some", "eval_every=7")
    due = [*range(0, 400, 7), 400]
    for a, b in zip(whole.runs, some.runs, strict=True):
        assert b.curves["round"].tolist() == due and b.row["rounds"] == 400
        for name in ("vectors_sent", "gradients"):
            assert np.array_equal(b.curves[name], a.curves[name][due])
        for name in ("distance", "loss"):
            np.testing.assert_allclose(b.curves[name], a.curves[name][due], rtol=1e-6)
        assert b.row["vectors_sent"] == a.row["vectors_sent"]
        reached = np.flatnonzero(b.curves["distance"] <= 1e-8)
        at = b.row["rounds_to_target"]
        assert at == (due[reached[0]] if len(reached) else None)
        if at is not None:
            assert a.row["rate"] == pytest.approx(b.row["rate"], rel=0.02)
    table = ff.Study.load(tmp_path / "some").table()
    assert len(table) == len(due) * len(some.runs)
    assert not table.isna().any().any()


def test_seconds_begin_anew_for_runs_that_did_not_fit_side_by_side(study, tmp_path, monkeypatch):
    """To find out that they do not takes a hundred seconds; a run may take fifty."""
    choose, now = placement.choose_client_state, [0.0]

    def one(asked, needs, *more):
        if needs.runs > 1:
            now[0] += 100
            raise placement.DoesNotFit("too much")
        return choose(asked, needs, *more)

    monkeypatch.setattr(placement, "choose_client_state", one)
    clock = SimpleNamespace(monotonic=lambda: now[0])
    for engine in (simulation, stop):
        monkeypatch.setattr(engine, "time", clock)
    found, _ = complete(study, tmp_path / "out", "stop.seconds=50", "algorithms={focus={}}")
    assert [run.row["rounds"] for run in found.runs] == [400] * 4


def test_divergence_is_a_verdict_and_no_warning(study, tmp_path):
    found, _ = complete(study, tmp_path / "out", "lr=1.0", "algorithms={fedavg={}}", "eval_every=7")
    for run in found.runs:
        assert run.row["verdict"] == "diverged"
        assert run.curves["round"][-1] == run.row["diverged_at"] == run.row["rounds"]


def test_what_does_not_fit_side_by_side_is_run_in_turn(study, tmp_path, monkeypatch):
    """Four runs are too much at once; two are not."""
    whole, _ = complete(study, tmp_path / "whole")
    choose, sizes = placement.choose_client_state, []

    def small(asked, needs, *more):
        sizes.append(needs.runs)
        if needs.runs > 2:
            raise placement.DoesNotFit("too much")
        return choose(asked, needs, *more)

    monkeypatch.setattr(placement, "choose_client_state", small)
    parts, _ = complete(study, tmp_path / "parts")
    assert sizes.count(4) == 3 and sizes.count(2) == 6
    for a, b in zip(whole.runs, parts.runs, strict=True):
        assert [a.row[k] for k in store.IDENTITY] == [b.row[k] for k in store.IDENTITY]
        np.testing.assert_allclose(
            a.curves["distance"], b.curves["distance"], rtol=1e-6, atol=1e-13
        )


def test_clients_memory_may_be_on_disk(study, tmp_path):
    few = "seeds=1", "algorithms={focus={}}"
    device, disk = (
        complete(study, tmp_path / where, *few, f"client_state={where}")[0]
        for where in ("device", "disk")
    )
    for a, b in zip(device.runs, disk.runs, strict=True):
        np.testing.assert_allclose(
            a.curves["distance"], b.curves["distance"], rtol=1e-6, atol=1e-13
        )
        assert b.row["tracking_gap"] < 1e-12


def test_two_at_once_in_a_folder_are_refused(study, tmp_path):
    plan = spec.load(study)
    with store.alone(tmp_path / "out"):
        with pytest.raises(ValueError, match="another focusfl is running"):
            runner.run_in_folder(plan, tmp_path / "out")


def test_what_is_not_ours_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no results"):
        ff.Study.load(tmp_path).table()
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="has format 99"):
        ff.Study.load(tmp_path).table()
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing of ours")
    here = store.Folder(tmp_path)
    here.add("x.parquet")
    with pytest.raises(ValueError, match="x.parquet is damaged, or no table"):
        here.read_runs("x")


def test_every_run_saves_its_last_model(study, tmp_path):
    found, _ = complete(study, tmp_path / "out")
    assert len(list((tmp_path / "out" / "models").iterdir())) == 12
    run = next(run for run in found.runs if run.row["algorithm"] == "focus")
    which = {"algorithm": "focus", "lr": run.row["lr"], "seed": 0}
    model = ff.Study.load(tmp_path / "out").model(**which)
    assert model.shape == (6,)
    assert np.array_equal(model, read_model(tmp_path / "out" / run.row["model"]))
    alone = ff.simulate(
        ff.Focus(), ff.problems.ridge(num_clients=4, dim=6, rows=12),
        ff.participation.Bernoulli(0.4), rounds=400, lr=run.row["lr"], local_steps=2,
    )  # fmt: skip
    np.testing.assert_allclose(model, alone.x, rtol=1e-9)


def test_models_of_all_rounds_are_saved_on_request_and_none_too(study, tmp_path):
    complete(study, tmp_path / "all", "models=all", "rounds=20", "lr=1e-3", "seeds=1")
    path = ff.Study.load(tmp_path / "all").model(algorithm="focus")
    assert path.shape == (21, 6) and np.all(path[0] == 0) and np.any(path[-1] != 0)
    found, _ = complete(study, tmp_path / "none", "models=none", "rounds=20")
    assert not (tmp_path / "none" / "models").exists()
    assert {run.row["model"] for run in found.runs} == {None}


@pytest.mark.parametrize(
    "which, words",
    [
        ({"algorithm": "fedavgg"}, "no run"),
        ({"algorithm": "focus"}, "Choose by lr: 0.001, 0.002; seed: 0, 1"),
        ({"algorithms": "focus"}, "unknown property of a run: 'algorithms'"),
    ],
)
def test_a_model_that_cannot_be_told_is_asked_for_again(study, tmp_path, which, words):
    complete(study, tmp_path / "out", "rounds=20")
    with pytest.raises(ValueError, match=words):
        ff.Study.load(tmp_path / "out").model(**which)


def test_the_manifest_knows_the_loss_of_the_optimum_where_there_is_one(study, tmp_path):
    found, _ = complete(study, tmp_path / "known", "rounds=1500")
    lowest = found.manifest["problem"]["optimal_loss"]
    ends = [r.curves["loss"][-1] for r in found.runs if r.row["algorithm"] == "focus"]
    assert np.allclose(ends, lowest, rtol=1e-14)  # x is x* to rounding, F rounds, too
    study.write_text(STUDY.replace('"ridge"', '"robust"'))
    found, _ = complete(study, tmp_path / "unknown", "rounds=3")
    assert found.manifest["problem"]["optimal_loss"] is None


def test_a_group_killed_in_the_middle_goes_on_from_its_checkpoint(study, tmp_path):
    """Three chunks of rounds; the watcher dies in the second one."""
    small = ["rounds=700", "lr=1e-3", "seeds=2", "checkpoint_every=1e-9"]
    whole, _ = complete(study, tmp_path / "whole", *small[:-1])
    told = []

    def watch(scenario, title):
        def tell(done, metrics):
            told.append(done)
            if done > 256 and title.startswith("focus") and len(died) == 0:
                died.append(done)
                raise KeyboardInterrupt

        return tell

    plan, died = spec.load(study, small, ["focus"]), []
    with pytest.raises(KeyboardInterrupt):
        runner.run_in_folder(plan, tmp_path / "cut", watch)
    (kept,) = (tmp_path / "cut/runs/unfinished").iterdir()
    assert (kept / "checkpoint.npz").exists()
    spent = float((kept / "seconds").read_text().split()[0])
    assert not list((tmp_path / "cut/runs").glob("*.parquet"))
    told.clear()
    found = runner.run_in_folder(plan, tmp_path / "cut", watch)
    assert told[0] >= 256  # where it was
    assert not (tmp_path / "cut/runs/unfinished").exists()
    assert sum(run.row["seconds"] for run in found.runs) > spent
    for ours, theirs in zip(found.runs, whole.runs[:2], strict=True):
        assert np.array_equal(ours.curves["distance"], theirs.curves["distance"])

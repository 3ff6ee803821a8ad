"""FLamby's tables, trained anew: the random numbers, the data, cells to the digit."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flamby import cells as made
from flamby import rare
from flamby import tables as report
from flamby.federations import Federation, Part, federation, split
from flamby.methods import judged, measure, models, turns
from flamby.problem import Together, Told, alone
from flamby.published import published
from flamby.torch_random import TorchRandom

import focusfl as ff
from focusfl.data import folder
from focusfl.participation import Full
from focusfl.simulation.reference import loop

SCRIPT = Path(__file__).parents[2] / "experiments" / "flamby" / "reproduce.py"
real_data = pytest.mark.needs("data")
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", [42, 2**33 + 5])
def test_a_seed_draws_what_it_draws_in_torch(seed):
    torch.manual_seed(seed)
    layer, ours = torch.nn.Linear(13, 1), TorchRandom(seed)
    theirs = [*layer.weight.detach().numpy()[0], layer.bias.item()]
    assert ours.linear(13).tolist() == np.float32(theirs).tolist()
    rows = torch.utils.data.TensorDataset(torch.arange(30))
    loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
    for _ in range(2):
        order = torch.cat([rows for (rows,) in loader])
        ours.skip_seed()
        assert ours.order(30).tolist() == order.tolist()


@pytest.mark.parametrize("ill", [0, 2, 3, 17, 40])
def test_the_split_is_that_of_scikit_learn(ill):
    from sklearn.model_selection import train_test_split

    y = np.random.default_rng(ill).permutation(np.arange(47) < ill).astype(float)
    groups = y if min(ill, 47 - ill) > 2 else None
    _, test = train_test_split(
        np.arange(47), test_size=1 - 0.66, train_size=0.66, random_state=43,
        stratify=groups,
    )  # fmt: skip
    assert sorted(test) == np.flatnonzero(~split(y)).tolist()


def small(survival: bool, ahead: bool = False) -> Federation:
    rng = np.random.default_rng(0)

    def part(rows: int) -> Part:
        x, time = rng.normal(size=(rows, 3)), rng.integers(1, 5, rows) * survival
        columns = x, rng.integers(0, 2, rows), time
        return Part(*(np.asarray(column, np.float32) for column in columns))

    train, test = (part(7), part(4)), (part(3), part(3))
    return Federation("small", train, test, (part(11), part(6)), 3, 2, 1200, ahead)


@pytest.mark.parametrize("survival", [False, True])
def test_gradients_are_those_of_the_loss_of_a_batch(survival):
    problem = alone(small(survival), small(survival).pooled[0], 1)
    data = {name: leaf[0] for name, leaf in problem.data.items()}
    x, number = np.array([0.3, -0.2, 0.1], np.float32), 3  # a short one
    ours = Told(survival).grad(x, data, SimpleNamespace(number=number))
    real = data["share"][number] > 0
    assert real.sum() == 2
    rows = data["rows"][number][real]
    batch = {name: data[name][rows] for name in ("A", "event", "time")}
    batch["share"] = np.full(len(rows), 1 / len(rows), np.float32)
    loss = jax.grad(lambda x: Told(survival).evaluate(x, batch)["loss"])
    np.testing.assert_allclose(ours, loss(jax.numpy.asarray(x)), atol=1e-6)


def test_everybody_takes_a_batch_of_all_its_own_patients_before_any_again():
    together = Together(small(False), 5)
    problem = together.next([range(2)] * 2)
    for part, batches in zip(problem.parts, problem.batches, strict=True):
        epoch = -(-len(part.event) // 3)
        assert len(batches) == 200
        for k in range(0, 200 - epoch, epoch):
            seen = np.concatenate(batches[k : k + epoch])
            assert sorted(seen) == list(range(len(part.event)))
    again = together.next([range(2)] * 2)
    assert all(map(np.array_equal, problem.batches[0], again.batches[0]))
    ahead = Together(small(False, ahead=True), 5)
    first, second = ahead.next([range(2)]), ahead.next([range(2)])
    same = [*map(np.array_equal, first.batches[0], second.batches[0])]
    assert not all(same[:3]) and len(same) == 100


def test_both_engines_run_a_table_of_batches():
    problem = Together(small(True), 7).next([range(2)] * 3)
    runs = dict(rounds=3, lr=0.01, local_steps=100)
    for algorithm in (ff.Scaffold(), ff.Focus(memory="mean")):
        plain = loop(algorithm, problem, Full(), **runs).x
        compiled = ff.simulate(algorithm, problem, Full(), **runs).x
        np.testing.assert_allclose(plain, compiled, rtol=2e-4, atol=1e-6)


def test_who_died_is_worse_off_than_who_was_last_seen_alive_that_day():
    fed = small(True)
    x = np.array([1, 0, 0], np.float32)
    scores = np.float32([[3, 0, 0], [2, 0, 0], [4, 0, 0]])
    part = Part(scores, np.float32([1, 0, 1]), np.float32([5, 5, 9]))
    assert measure(fed, part, x) == 0.5  # above the second, below the third
    assert set(judged(fed, x)) == {"client_test_0", "client_test_1", "Pooled Test"}


def test_cyclic_turns_come_round_in_orders_drawn_anew():
    ids = turns(4, 15, 42)
    assert len(ids) == 15 and all(sorted(ids[k : k + 4]) == [0, 1, 2, 3] for k in (0, 4, 8))


@real_data
@pytest.mark.parametrize(
    "name, seed, methods",
    [
        (
            "heart",
            42,
            ("Cyclic", "FedAvg", "FedProx", "Scaffold", "FedYogi", "Local 2"),
        ),
        # In TCGA's table the first batches of a method follow from the method before.
        ("tcga", 43, ("Cyclic", "FedAdagrad", "FedAdam", "FedAvg")),
    ],
)
def test_published_cells_come_out_to_the_digit(name, seed, methods):
    fed = federation(name)
    rows = [row for row in published(fed, seed) if row.method in methods]
    found = models(fed, rows, seed)
    assert len(rows) == len(methods)
    for row in rows:
        ours = judged(fed, found[row.method])
        assert ours == pytest.approx(row.values, abs=made.EQUAL), row.method


def cell(ours: float, seed: int = 42) -> made.Cell:
    return made.Cell("heart", seed, "FedAvg", "Pooled Test", 0.75, ours, 0.7, 0.75)


def test_a_report_counts_and_names_what_lies_outside():
    some = [cell(0.75), cell(0.72, 43), cell(0.76, 44)]
    assert "2 of 3 cells (66.7%)" in report.counted(some)
    assert "1 equal to the digit" in report.counted(some)
    [row] = report.outside(some).rows
    assert row[1] == "44" and "+0.0100" in row
    assert "0.743 -0.0067 (0.050)" in report.markdown(some)
    lines = report.tidy(some).splitlines()
    assert lines[1] == "heart,42,FedAvg,Pooled Test,0.75,0.75,0.0,0.7,0.75,True,True"
    assert lines[3].endswith("0.01,0.7,0.75,False,False") and len(lines) == 4


@real_data
def test_what_has_been_trained_is_not_trained_again(tmp_path, monkeypatch):
    calls = []

    def quickly(fed, rows, seed):
        calls.append(seed)
        x = np.zeros(fed.pooled[0].x.shape[1], np.float32)
        return {row.method: x for row in rows}

    monkeypatch.setattr(made, "models", quickly)
    once = list(made.cells(["heart"], tmp_path))
    assert calls == [42, 43, 44, 45, 46] and len(once) == 300
    file = next((tmp_path / "cells").glob("heart-44-*.json"))
    file.write_text(file.read_text().replace("0.", "1.", 1))
    assert list(made.cells(["heart"], tmp_path)) == once
    assert calls[5:] == [44]  # the damaged one


def test_a_method_has_the_step_of_the_lowest_loss_among_those_all_seeds_bear():
    found = np.full((2, len(rare.STEPS), 3), np.nan)  # None, as it is read
    found[:, :4, 0] = [[0.6, 0.5, 0.4, 0.2], [0.6, 0.3, 0.4, np.nan]]
    found[:, :4, 1:] = 0.7
    line = rare.best("heart", "FOCUS", found)
    assert line.lr == rare.STEPS[1] and line.loss == 0.4 and not line.edge
    found[:, 0, 0] = 0.1
    assert rare.best("heart", "FOCUS", found).edge
    with pytest.raises(ValueError, match="FOCUS must end at some step"):
        rare.best("heart", "FOCUS", 0 * found + np.nan)


@real_data
def test_a_hospital_that_is_rarely_there_changes_what_fedavg_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(rare, "LONGER", 1)
    monkeypatch.setattr(rare, "SEEDS", (42,))
    monkeypatch.setattr(rare, "STEPS", (1e-3, 1e-2))
    few = {name: rare.STRATEGIES[name] for name in ("FedAvg", "Scaffold")}
    monkeypatch.setattr(rare, "STRATEGIES", few)
    found = {line.method: line for line in rare.lines(["heart"], tmp_path)}
    assert len(found) == 6 and all(0 < line.loss < 1 for line in found.values())
    assert found["FedAvg"].loss > found[rare.EVERYBODY].loss
    again = {line.method: line for line in rare.lines(["heart"], tmp_path)}
    assert again == found and len([*(tmp_path / "rare").iterdir()]) == 6


@pytest.fixture
def tables(tmp_path):
    """A folder of data whose tables may be changed."""
    for name in ("fed_heart_disease", "flamby_results"):
        shutil.copytree(folder() / name, tmp_path / name)
    return tmp_path


@real_data
@pytest.mark.parametrize(
    "old, new, said",
    [
        ("Metric", "Merit", "must have a column Metric"),
        ("0.7980769230769231", "good", "line 2: must have a method"),
        ("client_test_3", "client_test_9", "must have Pooled Test, client_test_0"),
    ],
)
def test_a_table_that_is_none_is_refused_in_a_line(tables, old, new, said):
    file = tables / "flamby_results" / "heart_seed42.csv"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=said) as raised:
        published(federation("heart", tables), 42, tables)
    assert "\n" not in str(raised.value)


@real_data
def test_a_method_nobody_knows_is_named(tables):
    file = tables / "flamby_results" / "heart_seed42.csv"
    file.write_text(file.read_text().replace("Scaffold100", "Scafold100"))
    fed = federation("heart", tables)
    rows = [row for row in published(fed, 42, tables) if row.method == "Scafold"]
    with pytest.raises(ValueError, match="Did you mean 'Scaffold'"):
        models(fed, rows, 42)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--tables", "hart"], "must be one of heart, tcga; got 'hart'"),
        (["--tables", "hart", "--rare"], "must be one of heart, tcga; got 'hart'"),
        (["--tables", ","], "name at least one table of heart, tcga"),
    ],
)
def test_the_script_refuses_in_a_line(tmp_path, arguments, said):
    def script(*words, **environment):
        return subprocess.run(
            [sys.executable, str(SCRIPT), *words], cwd=tmp_path, text=True,
            env=os.environ | environment, capture_output=True, timeout=300,
        )  # fmt: skip

    done = script(*arguments)
    assert done.returncode == 2 and said in done.stderr
    away = script(FOCUSFL_DATA=str(tmp_path))
    assert away.returncode == 2 and "heart_disease is missing" in away.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "runs").exists()

import subprocess
import sys

import numpy as np
import pytest

import focusfl as ff
from focusfl.studies.tracking import TRACKERS, base, tracker

PROBLEM = ff.problems.random_quadratic(num_clients=4, dim=5, L=1.1)
LAW = ff.participation.Uniform(m=2)


class Notes(base.Tracker):
    """A tracker of one's own: lists."""

    def begin(self, name, parameters):
        return Note(name, parameters)


class Note(base.Record):
    all: list = []

    def __init__(self, name, parameters):
        self.name, self.parameters = name, parameters
        self.points, self.ended = [], None
        Note.all.append(self)

    def log(self, rounds, curves):
        self.points.append((rounds, curves))

    def end(self, summary, ok=True):
        self.ended = summary, ok


@pytest.fixture
def notes(monkeypatch):
    monkeypatch.setattr(Note, "all", [])
    return Note.all


def test_a_finished_run_is_told_whole(run, kept, notes):
    Notes()(run)
    (note,) = notes
    assert note.name == "some/focus/0.002/3/0"
    assert note.parameters == {
        "participation": "some", "algorithm": "focus", "lr": 2e-3, "local_steps": 3,
        "seed": 0, "rounds": 1500, "measure": "relative error",
    }  # fmt: skip
    ((rounds, curves),) = note.points
    assert rounds == kept[0] and len(rounds) == base.POINTS
    assert set(curves) == {"distance", "grad_norm", "loss"}
    for name, values in curves.items():
        assert values == kept[1][name].tolist()
    summary, ok = note.ended
    assert ok and summary["verdict"] == "exact" == run.row["verdict"]
    theory = {f"theory_{k}": v for k, v in run.row["theory"].items()}
    found = {k: v for k, v in run.row.items() if k not in ("theory", "why_lr")} | theory
    # What is a curve ends with its last point, and is not told again.
    known = {k: v for k, v in found.items() if v is not None and k not in curves}
    assert summary | note.parameters == known


@pytest.mark.parametrize("length", [1, 2, 999, 1000, 1001, 1999, 123_457])
def test_a_thinned_curve_has_its_ends_and_no_point_twice(length):
    kept = base.thinned(length)
    assert kept[0] == 0 and kept[-1] == length - 1
    assert len(np.unique(kept)) == len(kept) == min(length, base.POINTS)


def test_a_live_run_is_told_while_it_goes_on(notes):
    with Notes() as track:
        tell = track.progress("mine", lr=0.2, law=LAW, nothing=None)
        result = ff.simulate(ff.Focus(), PROBLEM, LAW, rounds=600, lr=0.2, callbacks=tell)
        (note,) = notes
        assert note.ended is None
    assert note.parameters == {"lr": 0.2, "law": str(LAW)}
    assert note.ended == ({}, True)
    assert len(note.points) > 1
    for (done,), curves in note.points:
        for name, (value,) in curves.items():
            assert value == result.metrics[name][done]
    assert done == 600


def test_runs_side_by_side_have_a_curve_each(notes):
    with Notes() as track:
        results = ff.sweep(
            ff.Focus(), PROBLEM, LAW, lrs=[0.1, 0.2], rounds=40,
            callbacks=track.progress("both"),
        )  # fmt: skip
    ((done,), curves) = notes[0].points[-1]
    for k, result in enumerate(results):
        assert curves[f"distance/{k}"] == [result.metrics["distance"][done]]


def test_what_breaks_off_is_not_told_as_success(notes):
    with pytest.raises(ZeroDivisionError), Notes() as track:
        track.progress("mine")
        raise ZeroDivisionError
    assert notes[0].ended == ({}, False)


def test_any_function_will_do(run):
    seen = []
    for each in (Notes(), seen.append):  # as `finished` of a study calls them
        each(run)
    ff.simulate(
        ff.Focus(), PROBLEM, LAW, rounds=5, lr=0.2,
        callbacks=lambda done, metrics: seen.append(done),
    )  # fmt: skip
    assert seen[0] is run and seen[-1] == 5


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tensorbord", "unknown tracker: 'tensorbord'. Did you mean 'tensorboard'?"),
        ("=here", "unknown tracker: ''."),
        ("wandb=", "'wandb=' says nothing after =; name a place, or leave it."),
    ],
)
def test_a_wrong_spec_is_explained(spec, words):
    with pytest.raises(ValueError) as error:
        tracker(spec)
    assert str(error.value).startswith(words)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_named(name, monkeypatch, tmp_path):
    (tmp_path / name).mkdir()  # such as old results: it must not pass for the package
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ValueError, match=rf"needs {name}; .* '\.\[{name}\]'"):
        tracker(f"{name}=x")


def test_no_tracker_is_imported_before_it_is_used():
    code = "import sys, focusfl.studies.tracking as t; t.tracker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"jax", *TRACKERS} & set(done.stdout.split())

"""A run that was killed and is run again gives the bits of one that never stopped."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import Stopped, bits, simulate, squares, stop_after, sweep, walked

import focusfl as ff
from focusfl.participation import Bernoulli, Full, Replay
from focusfl.simulation import checkpoint

ROUNDS = 2000
CHUNK = 256


def power(exponent):
    def loss(x, samples):
        return squares(x, samples) ** exponent

    return loss


@cache
def quadratic(seed=0):
    return ff.problems.random_quadratic(6, 5, seed=seed)


epochs = partial(walked, 6, begin=0.0, eval_data=20)

CASES = {
    "focus, quadratic": (ff.Focus(), quadratic, {"record_models": True}),
    "scaffold, quadratic": (ff.Scaffold(), quadratic, {}),
    "fedau, quadratic": (ff.FedAU(), quadratic, {"on_empty": "step"}),
    "focus, epochs": (ff.Focus(), epochs, {}),
    "scaffold, epochs": (ff.Scaffold(), epochs, {"record_models": True, "eval_every": 3}),
    "fedau, epochs": (ff.FedAU(), epochs, {}),
    "focus, on disk": (ff.Focus(), epochs, {"client_state": "disk"}),
}
CASE, OTHER, ON_DISK = "focus, quadratic", "focus, epochs", "focus, on disk"


def run(case=CASE, /, **changes):
    algorithm, problem, options = CASES[case]
    arguments = {
        "algorithm": algorithm,
        "problem": problem(),
        "participation": Bernoulli(0.3),
        "rounds": ROUNDS,
        "lr": 0.01,
        "local_steps": 3 if problem is quadratic else 1,
        "checkpoint_every": 0,
    }
    return simulate(**arguments | options | changes)


never_stopped = cache(run)


def told_of(case, **changes):
    """Run; give the rounds that progress was told of, and the result."""
    told = []
    result = run(case, callbacks=lambda done, _: told.append(done), **changes)
    return told, result


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_stops_at_a_random_round_resumes_to_the_bit(case, tmp_path):
    whole = never_stopped(case)
    first, second = sorted(random.Random(case).sample(range(600, ROUNDS - 300), 2))
    for round in (first, second):
        with pytest.raises(Stopped):
            run(case, checkpoint=tmp_path, callbacks=stop_after(round))
    told, result = told_of(case, checkpoint=tmp_path)
    assert second - 2 * CHUNK < told[0] <= second and told[-1] == ROUNDS
    assert bits(result) == bits(whole)


def test_runs_killed_again_and_again_end_with_the_bits_of_runs_never_stopped(tmp_path):
    rng, resumed = random.Random(0), set()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for turns in (*(rng.randint(2, 3) for _ in range(2)), None):
        command = [sys.executable, __file__, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as life:
            told, last = [], 0
            while last != turns and (line := life.stdout.readline()):
                told.append(line.split(":"))
                last += told[-1][0] == ON_DISK  # begins last
            if turns:
                time.sleep(rng.uniform(0, 0.1))
                life.kill()
        assert life.returncode == (-signal.SIGKILL if turns else 0)
        first = {case: int(done) for case, done in reversed(told)}
        resumed |= {case for case in first if CHUNK < first[case] < ROUNDS}
    assert ON_DISK in resumed
    for case in CASES:
        told, result = told_of(case, checkpoint=tmp_path / case)
        assert told == [ROUNDS]
        assert bits(result) == bits(never_stopped(case))


def test_runs_side_by_side_resume_though_one_of_them_has_diverged(tmp_path):
    problem = quadratic()
    slowly = 2.01 / problem.L_F  # what is off grows by 1 % a round
    masks = np.ones((3000, 6), bool)
    masks[2500:] = False  # rounds in which nothing could go wrong
    arguments = {
        "algorithm": ff.FedAvg(), "problem": problem, "participation": Replay(masks),
        "rounds": len(masks), "lrs": [0.01, slowly], "on_divergence": "ignore",
    }  # fmt: skip
    whole = sweep(**arguments)
    assert whole[0].diverged_at is None and 1000 < whole[1].diverged_at < 2500
    arguments |= {"checkpoint": tmp_path, "checkpoint_every": 0}
    for round in (700, 2700):
        with pytest.raises(Stopped):
            sweep(**arguments, callbacks=stop_after(round))
    for _ in range(2):
        again = sweep(**arguments)
        assert [bits(result) for result in again] == [bits(result) for result in whole]


def test_a_run_that_diverged_comes_back_as_such_without_running(tmp_path):
    arguments = {
        "algorithm": ff.FedAvg(), "participation": Full(), "local_steps": 1,
        "lr": 2.02 / quadratic().L_F,
    }  # fmt: skip
    told, whole = told_of(CASE, checkpoint=tmp_path, on_divergence="ignore", **arguments)
    assert CHUNK < whole.diverged_at == told[-1] < ROUNDS
    told_again, again = told_of(CASE, checkpoint=tmp_path, on_divergence="ignore", **arguments)
    assert told_again == told[-1:]
    assert bits(again) == bits(whole)
    with pytest.raises(ff.Diverged, match=f"round {whole.diverged_at}"):
        run(checkpoint=tmp_path, on_divergence="raise", **arguments)


def test_seeds_side_by_side_with_a_warm_start_and_noise_resume(tmp_path):
    noisy = ff.problems.Noisy(quadratic(), 0.1)
    run = partial(
        sweep, ff.Focus(warm_start=True), noisy, Bernoulli(0.3), rounds=600,
        lrs=[0.01, 0.02], seed=[0, 1],
    )  # fmt: skip
    whole, keep = run(), {"checkpoint": tmp_path, "checkpoint_every": 0}
    with pytest.raises(Stopped):
        run(**keep, callbacks=stop_after(300))
    assert [bits(one) for one in run(**keep)] == [bits(one) for one in whole]


def test_a_type_that_numpy_does_not_know_survives_the_file(tmp_path):
    problem = epochs(dtype="bfloat16")
    whole = run(OTHER, problem=problem, checkpoint=tmp_path, rounds=32)
    told, again = told_of(OTHER, problem=problem, checkpoint=tmp_path, rounds=32)
    assert whole.x["w"].dtype == "bfloat16" and told == [32]
    assert bits(again) == bits(whole)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Folders of two runs that have ended; whoever looks at them leaves them alone."""
    folders = {case: tmp_path_factory.mktemp("ended") for case in (CASE, OTHER)}
    for case, folder in folders.items():
        run(case, checkpoint=folder)
    before = [state_of(folder) for folder in folders.values()]
    yield folders
    assert before == [state_of(folder) for folder in folders.values()]


def state_of(folder):
    return [(f.name, f.stat().st_ino, f.read_bytes()) for f in sorted(folder.iterdir())]


def test_a_run_that_has_ended_gives_its_result_at_once(ended):
    told, result = told_of(CASE, checkpoint=str(ended[CASE]))
    assert told == [ROUNDS]
    assert bits(result) == bits(never_stopped(CASE))


@pytest.mark.parametrize(
    "case, change, message",
    [
        (CASE, {"lr": 0.002}, r"another run: lr was 0.01, is 0.002\. Run it as it was"),
        (CASE, {"rounds": 3000}, r": rounds was 2000, is 3000\."),
        (CASE, {"local_steps": 4}, r": local_steps was 3, is 4\."),
        (CASE, {"seed": 1}, r": seed was 0, is 1\."),
        (CASE, {"on_empty": "step"}, r": on_empty was skip, is step\."),
        (CASE, {"record_models": False}, r": record_models was True, is False\."),
        (CASE, {"eval_every": 2}, r": eval_every was 1, is 2\."),
        (CASE, {"x0": np.ones(5)}, r": x0 was #\w+, is #\w+\."),
        (CASE, {"participation": Full()}, r": participation was #\w+, is #\w+\."),
        (CASE, {"problem": quadratic(1)}, r": data was #\w+, is #\w+; eval_data was #"),
        (
            CASE,
            {"algorithm": ff.FedAvg()},
            r": algorithm was Focus\(.*is FedAvg\(",
        ),
        (CASE, {"lr": 0.1, "seed": 1}, r": lr was 0.01, is 0.1; seed was 0, is 1\."),
        (OTHER, {"problem": epochs(eval_data=9)}, r": eval_data was #\w+, is #\w+\."),
        (OTHER, {"problem": epochs(power(2))}, r": objective was .*<function squares>"),
        (
            OTHER,
            {"problem": epochs(dtype="float64")},
            r": dtype was float32, is fl",
        ),
    ],
)
def test_another_run_is_refused_by_what_differs(ended, case, change, message):
    with pytest.raises(ValueError, match=message):
        run(case, checkpoint=ended[case], **change)


def shifted(begin, broadcast):
    @dataclass(frozen=True)
    class Shifted(ff.FedAvg):
        def init(self, params):
            return super().init(params + begin)

        def broadcast(self, server):
            return {"x": server.x + broadcast}

    return Shifted()


def test_an_algorithm_that_was_edited_under_its_old_name_is_another_run(tmp_path):
    run(rounds=32, checkpoint=tmp_path, algorithm=shifted(1, 1))
    for edited in (shifted(2, 1), shifted(1, 2)):
        with pytest.raises(ValueError, match=r": code \(.*\) was #\w+, is #\w+\."):
            run(rounds=32, checkpoint=tmp_path, algorithm=edited)


def test_a_loss_that_was_edited_under_its_old_name_is_another_run(tmp_path):
    run(OTHER, rounds=32, checkpoint=tmp_path, problem=epochs(power(1)))
    run(OTHER, rounds=32, checkpoint=tmp_path, problem=epochs(power(1)))
    with pytest.raises(ValueError, match=r": code \(.*\) was #\w+, is #\w+\."):
        run(OTHER, rounds=32, checkpoint=tmp_path, problem=epochs(power(2)))


def test_another_version_is_refused(ended, monkeypatch):
    monkeypatch.setattr(checkpoint, "__version__", "99")
    with pytest.raises(ValueError, match=r": focusfl was .*, is 99\."):
        run(checkpoint=ended[CASE])
    monkeypatch.setattr(checkpoint, "version", lambda name: f"{name} 99")
    with pytest.raises(ValueError, match=r"; jax was .*, is jax 99; jaxlib was "):
        run(checkpoint=ended[CASE])


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def flipped(whole):
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [lambda w: w[: len(w) // 2], lambda w: w[:-1], lambda w: b"", flipped],
    ids=["half", "all but a byte", "empty", "a bit flipped"],
)
def test_a_damaged_file_is_refused(ended, tmp_path, damage):
    file = tmp_path / checkpoint.NAME
    file.write_bytes(damage((ended[CASE] / checkpoint.NAME).read_bytes()))
    with pytest.raises(ValueError, match=r"npz cannot be read.*remove it to begin"):
        run(checkpoint=tmp_path)
    file.unlink()
    assert bits(run(checkpoint=tmp_path)) == bits(never_stopped(CASE))


def test_nothing_is_unpickled(tmp_path):
    trace = tmp_path / "trace"
    traps = {checkpoint.FACTS: np.array([Trap(trace)])}
    np.savez(tmp_path / checkpoint.NAME, **traps)
    with pytest.raises(ValueError, match="cannot be read"):
        run(checkpoint=tmp_path)
    assert not trace.exists()


def test_a_disk_that_is_full_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    calls, savez = [], np.savez

    def half(file, **arrays):
        calls.append(file.name)
        if len(calls) == 4:
            file.write(b"half a file")
            raise OSError(28, "No space left on device")
        savez(file, **arrays)

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="No space left"):
        run(checkpoint=tmp_path)
    told, result = told_of(CASE, checkpoint=tmp_path)
    assert told[0] == 3 * CHUNK
    assert bits(result) == bits(never_stopped(CASE))
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.NAME]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, n=name, real=real: (calls.append(n), real(*a)))
    run(checkpoint=tmp_path, checkpoint_every=60)
    assert calls == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize(
    "every, written",
    [
        (0, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (60, [0, 0, 0, 0, 0, 1, 1, 1, 2]),
        (float("inf"), [0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ],
)
def test_a_run_is_kept_so_many_seconds_apart_and_at_its_end(tmp_path, monkeypatch, every, written):
    """At 25 seconds a chunk; what is kept after a chunk is written during the next."""
    now, calls, replace = [0], [], os.replace

    def progress(done, metrics):
        now[0] += 25
        seen.append(len(calls))

    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(checkpoint, "time", clock)
    monkeypatch.setattr(os, "replace", lambda *a: (calls.append(a), replace(*a)))
    seen, folder = [], tmp_path / "new" / "folder"
    run(checkpoint=folder, checkpoint_every=every, callbacks=progress)
    assert [*seen, len(calls)] == written
    assert [file.name for file in folder.iterdir()] == [checkpoint.NAME]


def test_two_runs_cannot_have_one_folder(tmp_path):
    def progress(done, metrics):
        run(checkpoint=tmp_path)

    with pytest.raises(ValueError, match=r"another run keeps its checkpoint in .*"):
        run(checkpoint=tmp_path, callbacks=progress)
    run(checkpoint=tmp_path)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ValueError, match="folder that can be written to; got"):
            run(checkpoint=place)


def test_a_folder_of_somebody_else_is_refused():
    me = os.geteuid()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        os.seteuid(me or 65534)  # root may write anywhere
        try:
            with pytest.raises(ValueError, match="written to; got .*: Permission"):
                run(checkpoint=folder)
        finally:
            os.seteuid(me)


@pytest.mark.parametrize("every", [-1, float("nan")])
def test_a_time_that_is_none_is_refused(tmp_path, every):
    with pytest.raises(ValueError, match="every must be a number"):
        run(checkpoint=tmp_path, checkpoint_every=every)


def test_numbers_of_numpy_are_numbers(tmp_path):
    steps, seed = np.int64(3), np.int64(0)
    run(rounds=np.int64(ROUNDS), local_steps=steps, seed=seed, checkpoint=tmp_path)
    told, _ = told_of(CASE, checkpoint=tmp_path)
    assert told == [ROUNDS]


def run_all(folder):
    """Run all cases at once, each in a folder of its own, and say how far they are."""

    def one(case):
        def tell(done, metrics):
            print(f"{case}:{done}\n", end="", flush=True)
            time.sleep(0.2)

        run(case, checkpoint=folder / case, callbacks=tell)

    with ThreadPoolExecutor(len(CASES)) as pool:
        list(pool.map(one, CASES))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))

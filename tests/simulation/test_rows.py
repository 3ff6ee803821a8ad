"""Clients' rows on disk: damage is seen, and a disk that is full says so."""

import os
import shlex
import shutil
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from helpers import Stopped, bits, quadratic, simulate, stop_after

import focusfl as ff
from focusfl.core import files
from focusfl.participation import Uniform
from focusfl.simulation import plan as layout
from focusfl.simulation import rows as mapped
from focusfl.simulation import runner as simulation
from focusfl.simulation.rows import checksums

HOW = {"rounds": 90, "lr": 0.02, "local_steps": 2}


@pytest.fixture(scope="module")
def half_done(tmp_path_factory):
    """The folders of a run at an earlier and at a later checkpoint, and the run."""
    place = tmp_path_factory.mktemp("half")
    problem = quadratic()

    def run(folder, **more):
        return simulate(
            ff.Focus(), problem, Uniform(6), **HOW, client_state="disk",
            checkpoint=folder, **more,
        )  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        few = layout.ChunkPolicy(8, 50, 3)
        patch.setattr(simulation, "chunk_policy", lambda *_: few)
        for name, rounds in (("early", 20), ("late", 60)):
            with pytest.raises(Stopped):
                run(place / "run", checkpoint_every=0, callbacks=stop_after(rounds))
            shutil.copytree(place / "run", place / name)
        yield place, run


def test_a_flipped_bit_of_any_row_that_counts_is_seen(half_done, tmp_path):
    """A client has two places in a file, one of which the checkpoint needs."""
    place, run = half_done
    expected = bits(run(tmp_path / "never damaged"))
    for file, clients in (("clients-0.rows", 6), ("clients-1.rows", 1)):
        seen = 0
        for client, half in product(range(clients), range(2)):
            folder = shutil.copytree(place / "late", tmp_path / "run")
            whole = bytearray((folder / file).read_bytes())
            whole[(6 * half + client) * len(whole) // 12 + client % 4] ^= 1 << client
            (folder / file).write_bytes(whole)
            try:
                assert bits(run(folder)) == expected
            except files.Damaged as error:
                assert f"{file} is damaged" in str(error) and "\n" not in str(error)
                assert f"that of client {client};" in str(error)
                seen += 1
            shutil.rmtree(folder)
        assert seen == clients


def test_rows_of_an_older_checkpoint_are_refused(half_done, tmp_path):
    place, run = half_done
    folder = shutil.copytree(place / "late", tmp_path / "run")
    for file in (place / "early").glob("*.rows"):
        shutil.copy(file, folder)
    with pytest.raises(ValueError, match="of another time than its checkpoint"):
        run(folder)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1"])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_checksum_of_a_row_is_its_own_and_sees_every_bit(dtype, size):
    rows = np.random.default_rng(0).integers(0, 256, (5, size * 8), "u1").view(dtype)
    rows = rows[:, :size]
    sums = checksums(rows)
    assert np.array_equal(sums[2:4], checksums(rows[2:4]))
    for bit in range(8 * rows[0].nbytes):
        other = np.ascontiguousarray(rows).copy()
        other.view("u1")[1, bit // 8] ^= 1 << bit % 8
        assert np.array_equal(checksums(other) != sums, np.arange(5) == 1)


FULL = """
import sys
import numpy as np
import focusfl as ff
H = np.ones((1000, 40, 40)) + np.eye(40)
class Unsolved(ff.problems.Quadratic):
    optimum = np.zeros(40)
problem = Unsolved(H, np.ones((1000, 40)))
def fill(done, metrics):
    try:
        with open(sys.argv[1] + "/other", "ab", 0) as other:
            while True:
                other.write(bytes(4096))
    except OSError:
        pass
try:
    ff.simulate(
        ff.Focus(), problem, ff.participation.Uniform(100), rounds=60, lr=1e-6,
        eval_every=10**6, callbacks=fill,
        options=ff.Options(client_state="disk", state_folder=sys.argv[1]),
    )
except OSError as error:
    print("said:", error)
"""


def test_a_disk_that_fills_up_under_the_map_ends_in_a_sentence(tmp_path):
    """Others write to it too: that there was room in the beginning does not help."""
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    inside = f"{shlex.join(mounted)} && {shlex.join([sys.executable, '-c', FULL])} $0"
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, str(tmp_path)],
        capture_output=True, text=True,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no disk can be made here")
    assert done.returncode == 0, done.stderr
    assert f"said: [Errno 28] No space left on device: '{tmp_path}'" in done.stdout


def test_a_row_that_does_not_fit_is_said_with_the_name_of_the_file(
    half_done, tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device")

    place, run = half_done
    folder = shutil.copytree(place / "late", tmp_path / "run")
    monkeypatch.setattr(mapped, "ROOM", 1 << 62)
    expected = bits(run(tmp_path / "tight"))
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left on device: .*clients-0.rows"):
        run(folder)
    monkeypatch.undo()
    assert bits(run(folder)) == expected == bits(run(tmp_path / "not tight"))

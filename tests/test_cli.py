"""The command line as a user meets it.

Every command starts once in a process of its own; most of what it may say is asked of
it in this one."""

import json
import re
import resource
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from command_line import ENDED, in_a_process, in_process

import focusfl as ff

STUDY = """
rounds = 60
lr = 2e-3
local_steps = 3

[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12

[participation.some]
kind = "uniform"
m = 2

[algorithms.focus]

[algorithms.halved]
kind = "fedavg"
server_lr = 0.5
lr = 1e-3
"""


@pytest.fixture
def focusfl(tmp_path):
    return partial(in_process, cwd=tmp_path)


@pytest.fixture
def process(tmp_path):
    return partial(in_a_process, cwd=tmp_path)


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_demo_shows_focus_exact_and_fedavg_biased(process, tmp_path):
    done = process("demo", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["runs"]) == 6
    for cell in answer["runs"]:
        if cell["algorithm"] == "focus":
            assert cell["verdict"] == "exact" and cell["error"] < 1e-12
        else:
            assert cell["verdict"] == "biased" and cell["error"] > 1e-2
    for file in answer["files"]:
        assert (tmp_path / file).stat().st_size > 1000
    page = (tmp_path / "runs/demo/index.html").read_text()
    assert "FOCUS" in page and "biased" in page
    assert not list((tmp_path / "runs/demo").glob(".*")), "temporary files stay behind"


def test_run_writes_curves_that_equal_the_library(process, study, tmp_path):
    done = process("run", study, "--set", "rounds=40", "--out", "here")
    assert done.returncode == 0, done.stderr
    assert "halved" in done.stdout
    table = ff.Study.load(tmp_path / "here").table()
    curve = table[table["algorithm"] == "halved"]["distance"]
    expected = ff.simulate(
        ff.FedAvg(server_lr=0.5),
        ff.problems.ridge(num_clients=4, dim=6, rows=12),
        ff.participation.Uniform(2),
        rounds=40, lr=1e-3, local_steps=3,
    )  # fmt: skip
    assert np.array_equal(curve, expected.metrics["distance"])
    manifest = json.loads((tmp_path / "here/manifest.json").read_text())
    assert manifest["study"]["rounds"] == 40
    assert manifest["environment"]["jax"]


def test_participation_can_follow_the_data(focusfl, study):
    """Correlated with the data the bias is there; against the data it is another."""
    rare = 'kind = "bernoulli"\nby_rarity = { p_min = 0.05, p_max = 0.9, strength = 1.0 }'
    study.write_text(STUDY.replace('kind = "uniform"\nm = 2', rare))
    set_rounds = ["--set", "rounds=3000", "--json"]
    ends = []
    for strength in ("1.0", "0.0", "-1.0"):
        change = ["--set", f"participation.some.by_rarity.strength={strength}"]
        done = focusfl("run", study, *set_rounds, *change)
        assert done.returncode == 0, done.stderr
        focus, fedavg = json.loads(done.stdout)["runs"]
        assert focus["verdict"] == "exact" and fedavg["verdict"] == "biased"
        ends.append(fedavg["error"])
    assert len(set(ends)) == 3


def test_a_tracker_is_told_of_runs_that_had_ended_before(focusfl, study, tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    assert focusfl("run", study).returncode == 0

    def tracked(*more):
        place = tmp_path / f"board{len(more)}"
        done = focusfl("run", study, "--track", f"tensorboard={place}", *more)
        assert done.returncode == 0, done.stderr
        return done.stdout, {file.parents[3].name for file in place.rglob("events*")}

    said, names = tracked()
    assert names == {"focus", "halved"}
    assert "tracked: 2 runs, 2 of which had ended before" in said
    said, names = tracked("--set", "seeds=2")
    assert "tracked: 4 runs, 2 of which had ended before" in said
    assert names == {"focus", "halved"}


def test_a_diverging_study_says_where_and_still_ends_well(focusfl, study):
    done = focusfl("run", study, "--set", "algorithms.halved.lr=1.0", "--json")
    assert done.returncode == 0, done.stderr
    halved = json.loads(done.stdout)["runs"][1]
    assert halved["verdict"] == "diverged" and halved["diverged_at"] < 60


def test_reproduce_shows_what_is_exact(focusfl, tmp_path):
    who = "focus,scaffnew,fedavg"
    done = focusfl("reproduce", "ridge-public-code", "--algorithms", who, "--json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    verdicts = {(run["algorithm"], run["participation"]): run["verdict"] for run in runs}
    for scenario in ("full", "uniform", "weighted"):
        assert verdicts["focus", scenario] == verdicts["scaffnew", scenario] == "exact"
        assert verdicts["fedavg", scenario] == "biased"
    assert (tmp_path / "runs/reproduce-ridge-public-code/manifest.json").exists()


def test_theory_prints_a_report_for_every_participation_model(process, focusfl, study):
    done = process("theory", study, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["some"]
    assert found["constants"]["N"]["value"] == 4
    assert "largest step" in focusfl("theory", study).stdout


def test_a_problem_without_a_known_optimum_is_judged_by_its_gradient(focusfl, study):
    text = STUDY.replace('"ridge"', '"robust"').replace("lr = 2e-3", "lr = 2e-2")
    study.write_text(text.replace("\nlr = 1e-3", ""))
    done = focusfl("run", study, "--set", "rounds=1500", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["error"] < 0.1


def test_an_interrupt_ends_it_at_once_and_leaves_nothing_half_written(tmp_path):
    # A process started in the background may have inherited deafness to the signal.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from focusfl.cli import main; main(['reproduce', 'ridge'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as running:
        assert "running" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=600)
    assert running.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    left = {path.name for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert left <= {".lock"}


def test_graph_draws_a_round(process, tmp_path):
    done = process("graph", "--clients", 4, "--active", "1,3", "--out", "round.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "round.png").read_bytes()[:4] == b"\x89PNG"


def test_list_names_everything(process, focusfl):
    found = json.loads(process("list", "--json").stdout)
    assert set(found["algorithms"]) == set(ff.ALGORITHMS)
    assert "weighted" in found["participation"] and "ridge" in found["problems"]
    assert set(found["schedules"]) == set(ff.schedules.SCHEDULES)
    assert set(found["compressors"]) == set(ff.compression.COMPRESSORS)
    assert "lr" not in found["schedules"]["cosine"]["options"]  # each of the study's
    for kinds in found.values():  # no sentence is cut
        assert all(about["what"][-1:] in (".", "?") for about in kinds.values())
    table = focusfl("list").stdout
    assert "compressors (compression)" in table
    for name in ("focus", "weighted", "ridge", "cosine", "top_k"):
        assert re.search(rf"^ *{name} ", table, re.M), name


@pytest.mark.parametrize(
    "code, most",
    [
        ("import sys; from focusfl.cli import main; main(['--help'])", 0.4),
        ("import focusfl", 0.6),
    ],
    ids=["help", "import"],
)
def test_it_is_there_at_once(code, most):
    """Seconds of one core, which others on the machine do not change much."""
    check = "import sys, atexit; atexit.register(lambda: 'jax' in sys.modules and 1 / 0)"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", f"{check}; {code}"]
    done = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "Error" not in done.stderr, done.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < most


def test_help_ends_in_an_example(focusfl):
    for command in (
        [],
        ["demo"],
        ["new"],
        ["run"],
        ["schema"],
        ["merge"],
        ["report"],
        ["plot"],
        ["compare"],
        ["export"],
        ["reproduce"],
        ["theory"],
        ["graph"],
        ["list"],
    ):
        last = focusfl(*command, "--help").stdout.strip().split("\n\n")[-1]
        assert last.startswith("example: focusfl ")


@pytest.mark.parametrize(
    "edit, message",
    [
        (("rounds = 60", "rouns = 60"), "study.toml, line 2: unknown key"),
        (("dim = 6", "dim = 'six'"), "line 9: problem.dim must be a whole number"),
        (("server_lr = 0.5", "server_lr = 0"), "server_lr must be positive"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1],
)
def test_a_broken_study_gets_one_line_and_exit_code_2(focusfl, study, edit, message):
    study.write_text(STUDY.replace(*edit))
    done = focusfl("run", study)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert not (study.parent / "runs").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "missing.toml"], "cannot read missing.toml: No such file"),
        (["run", "."], "cannot read .: Is a directory"),
        (["run", "study.toml", "--set", "rounds"], "--set takes key=value"),
        (["run", "study.toml", "--set", "rounds.x=1"], "'rounds' is a value"),
        (["run", "study.toml", "--out", "study.toml"], "must be a folder"),
        (["run", "study.toml", "--devices", "64"], "devices must be at most"),
        (["run", "study.toml", "--devices", "0"], "devices must be"),
        (
            ["run", "study.toml", "--workers", "0"],
            "--workers must .* got 0. Leave",
        ),
        (["run", "study.toml", "--workers", "-1"], "--workers must be .* got -1"),
        (["run", "study.toml", "--workers", "a"], "invalid int value: 'a'"),
        (["run", "study.toml", "--track", "nobody"], "nobody"),
        (["run", "study.toml", "--resume"], "nothing to resume"),
        (
            ["run", "study.toml", "--set", "algorithms.halved.lr=auto"],
            "lr=auto: .* for FOCUS alone; .*halved. needs numbers",
        ),
        (["run", "study.toml", "--set", 'lr=[1,"auto"]'], 'list of such .* or "auto"'),
        (["run", "study.toml", "--set", "lr=[]"], "at least one value"),
        (["run", "study.toml", "--set", "problem=5"], "must be a table"),
        (["run", "study.toml", "--set", "problem.seed=-1"], "seed must be .* got -1"),
        (["run", "study.toml", "--set", "problem.rows=0"], "rows must be .* got 0"),
        (["run", "study.toml", "--set", "problem.penalty=nan"], "penalty must be"),
        (
            ["run", "study.toml", "--set", "problem.num_clients=1000000000"],
            "would take",
        ),
        (["run", "study.toml", "--set", "participation.some.m=9"], "m = 9 of 4"),
        (["new", "study.toml"], "study.toml exists"),
        (["new", "study.txt"], "a .toml file; got study.txt"),
        (["theory", "missing.toml"], "cannot read missing.toml"),
        (["completion", "ksh"], "unknown shell: 'ksh'"),
        (["graph", "--clients", "0"], "got 0"),
        (["graph", "--clients", "1000000000"], "between 1 and 16"),
        (["reproduce", "ridge", "--seeds", "3"], "unrecognized arguments: --seeds"),
        (["reproduce", "ridge", "--set", "rounds=0"], "rounds must be"),
        (["reproduce", "ridge", "--participation", "never"], "never"),
        (["dmeo"], "invalid choice"),
        (["reproduce", "rigde"], "invalid choice: 'rigde'"),
        (["demo", "--algorithms", "focsu"], "Did you mean 'focus'?"),
        (["graph", "--clients", "4", "--active", "1,x"], "numbers between commas"),
        (["graph", "--clients", "4", "--active", "5"], "got"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_arguments_get_exit_code_2(focusfl, study, arguments, message):
    done = focusfl(*arguments)
    assert done.returncode == 2
    assert re.search(message.replace("[", r"\["), done.stderr), done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    said = done.stderr.splitlines()
    assert len(said) == 1 or said[0].startswith("usage:")
    assert not (study.parent / "runs").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "missing.toml"], "focusfl: cannot read missing.toml"),
        (["reproduce", "ridge", "--set", "rounds=0"], "focusfl: --set rounds=0: rounds must be"),
        (["dmeo"], "usage:"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_process_ends_with_the_code_and_the_line(process, arguments, message):
    done = process(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(message) and "Traceback" not in done.stderr


FOREIGN = "manifest.json index.html results.parquet participation.parquet figure.png".split()
REFUSED = "files that focusfl did not write (['{}'])"


@pytest.mark.parametrize("command", [
    ("demo",), ("tune", "study.toml"), ("suite", "run", "--quick"), ("run", "study.toml"),
], ids=" ".join)  # fmt: skip
def test_a_folder_of_others_is_refused_and_left_as_it_is(focusfl, study, tmp_path, command):
    place = tmp_path / "theirs"
    place.mkdir()
    for name in FOREIGN:
        (place / name).write_text("{}")
        told = focusfl(*command, "--out", place)
        assert told.returncode == 2 and REFUSED.format(name) in told.stderr
        assert [file.name for file in place.iterdir()] == [name]
        assert (place / name).read_text() == "{}"
        (place / name).unlink()


def test_what_is_run_afresh_is_not_called_nothing(focusfl, study):
    nothing = "nothing was left to run"
    assert nothing not in focusfl("run", study, "-o", "here").stdout
    assert nothing in focusfl("run", study, "-o", "here").stdout
    again = focusfl("run", study, "-o", "here", "--fresh")
    assert nothing not in again.stdout and len(ENDED.findall(again.stderr)) == 2


def test_a_reader_that_has_read_enough_ends_it_quietly(tmp_path):
    command = [sys.executable, "-m", "focusfl.cli", "schema"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as running:
        running.stdout.close()  # as head -1 does
        said = running.stderr.read()
    assert said == b"" and running.returncode == 141  # as of `yes | head -1`


@pytest.mark.parametrize(
    "command, most, named",
    [
        (["new", "other.toml"], 512, "other.toml"),
        (["run", "study.toml", "--out", "here"], 4096, r"here/runs/\w+.parquet"),
        (["graph", "--clients", "3", "--out", "a.png"], 4096, "a.png"),
    ],
    ids=["new", "run", "graph"],
)
def test_a_full_disk_is_named_and_nothing_is_left_half_written(
    study, tmp_path, command, most, named
):
    """No file may pass some bytes: what writing to a full disk is like."""
    code = (
        f"import resource as r, sys; r.setrlimit(r.RLIMIT_FSIZE, ({most}, {most})); "
        f"from focusfl.cli import main; sys.exit(main({command}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(f"focusfl: cannot use {named}: File too large", last), last
    files = {p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size}
    assert files == {study}

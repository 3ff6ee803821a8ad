"""Real SuperLinks, superexecs and SuperNodes on loopback."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from chaos import chaotic
from command_line import in_a_process
from sleepers import ended

import focusfl as ff
from focusfl.deploy import apps, ownership, study
from focusfl.deploy.local import local_app, local_study
from focusfl.deploy.processes import is_alive
from focusfl.studies import store

ROOT = Path(__file__).parents[2]
QUADRATIC = """
rounds = 18
lr = 0.33
[problem]
kind = "random_quadratic"
dim = 6
L = 1.02
[participation.full]
[algorithms.focus]
[algorithms.scaffold]
"""
RIDGE = """
rounds = 60
lr = 8.7e-4
local_steps = 2
[problem]
kind = "ridge"
dim = 10
rows = 100
[participation.full]
[algorithms.focus]
"""


def deployed(folder: Path, text: str, clients: int, *changes: str, algorithm=None):
    file = folder / "study.toml"
    file.write_text(text)
    return study.load(file, changes, algorithm, clients)


def run(folder, this, plan=None, **more):
    """Deploy a study; give what happened and what has come of it."""
    said = []
    outcome = local_study(this, folder / "run", said.append, driver=chaotic(plan or {}), **more)
    kinds = [event["event"] for event in said]
    assert not [line for line in ownership.started(folder / "run") if line.alive]
    return said, kinds, outcome


def begun_in(folder):
    """The event by which the server app of a fleet said that it began."""
    (file,) = folder.glob("server/*/events.jsonl")
    return next(json.loads(line) for line in file.read_text().splitlines() if '"begin"' in line)


def expected(this, masks):
    return ff.simulate(
        this.algorithm, this.problem, ff.participation.Replay(masks),
        rounds=len(masks), lr=this.lr, local_steps=this.local_steps,
    )  # fmt: skip


@pytest.mark.slow
def test_crashes_and_a_deleted_disk_leave_it_exact(tmp_path):
    """The whole promise, on three clients."""
    this = deployed(tmp_path, QUADRATIC, 3)
    plan = {2: "disk:0", 3: "node:1", 4: "superlink", 5: "node:2", 6: "server", 7: "node:0"}
    said, kinds, outcome = run(tmp_path, this, plan, settings={"deadline": 60.0, "patience": 60.0})
    assert kinds.count("begin") == 2 and kinds.count("chaos") == 6
    assert kinds.count("nothing") >= 3
    assert outcome.metrics["distance"] <= 1e-8
    assert outcome.gap <= 1e-9 and outcome.generations == 1
    shares = outcome.masks.mean(0)
    assert (shares > 0.3).all() and (shares < 1).all()
    assert outcome.metrics["grad_norm"] <= 1e-7 and outcome.of == "all 3 sites"
    assert outcome.warnings == [] and list(outcome.counted) == list(this.sites)
    left = store.Study.load(tmp_path / "run")
    (kept,) = left.runs
    assert kept.curves["distance"][-1] == outcome.metrics["distance"]
    assert kept.row["grad_norm"] == outcome.metrics["grad_norm"]
    masks = np.zeros_like(outcome.masks)
    masks[left.participants["deployed"]] = True
    assert (masks == outcome.masks).all()
    with np.load(tmp_path / "run" / "model.npz") as model:
        assert (model["x"] == outcome.x).all()
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file() and {"sites", "server"} & set(file.parts):
            assert file.stat().st_mode & 0o077 == 0, f"others can read {file}"


def test_an_interrupt_stops_all_that_was_started(tmp_path):
    (tmp_path / "study.toml").write_text(QUADRATIC)
    words = "deploy local study.toml --clients 2 --tls --set rounds=1000"
    command, folder = words.split(), tmp_path / "runs/deploy-study"
    code = (
        "import signal, sys; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from focusfl.cli import main; sys.exit(main({command}))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as running:
        assert "start: focus of study on 2 SuperNodes" in running.stderr.readline()
        while "begin" not in running.stderr.readline():
            pass
        lines = ownership.started(tmp_path / "runs/deploy-study")
        assert len(lines) == 4 and all(line.alive for line in lines)
        begun = begun_in(folder)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=600)
    assert running.returncode == 130 and "Traceback" not in said
    lines = ownership.started(tmp_path / "runs/deploy-study")
    assert len(lines) == 4 and not any(line.alive for line in lines)
    assert not is_alive(begun["pid"])
    groups = subprocess.check_output(["ps", "-A", "-o", "pgid=,stat="], text=True)
    alive = {int(row.split()[0]) for row in groups.splitlines() if "Z" not in row}
    assert not alive & {line.pid for line in lines}, "children outlive their parents"


TASK = """
import numpy as np
from focusfl import Focus
from focusfl.flower import Job, client_app

JOB = dict(algorithm=Focus(), params={"x": np.zeros(2)}, sites=("rome", "oslo"), lr=0.3)
CLIENT = client_app(lambda x, batch: {"x": x["x"] - 1.0}, Focus())
"""
STRATEGY = """
from pathlib import Path
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from focusfl.flower import AlgorithmStrategy
from .task import JOB, Job

app = ServerApp()

@app.main()
def main(grid, context):
    folder = context.run_config["folder"]
    job = Job(**JOB, rounds=1, folder=folder, job="mine")
    start = ArrayRecord({"x": Array(JOB["params"]["x"])})
    AlgorithmStrategy(job).start(grid, start, num_rounds=2, timeout=60)
    (Path(folder) / "saved").write_text("after the last round")
"""
JOB = """
from focusfl.flower import server_app
from .task import JOB, Job

app = server_app(Job(**JOB, rounds=2, folder="~/nowhere", job="mine"))
"""
CONFIG = '[tool.flwr.app.config]\nsites = "rome oslo"\nfolder = "x"\njob = "mine"\n'


def app_of(folder, server, config=""):
    """Write an app of one's own."""
    apps.init(folder)
    (folder / "training" / "task.py").write_text(TASK)
    (folder / "training" / "server_app.py").write_text(server)
    (folder / "training" / "client_app.py").write_text("from .task import CLIENT\n\napp = CLIENT\n")
    text = (folder / "pyproject.toml").read_text()
    head = text[: text.index("[tool.flwr.app.config]")]
    (folder / "pyproject.toml").write_text(head + config)


@pytest.mark.parametrize(
    ("server", "config"),
    [
        pytest.param(STRATEGY, CONFIG, id="strategy"),
        pytest.param(JOB, "", id="job", marks=pytest.mark.slow),
    ],
)
def test_an_app_of_ones_own_ends_well(server, config, tmp_path):
    """One with a strategy, and one with a job and no settings."""
    app_of(tmp_path / "own", server, config)
    done = in_a_process("deploy", "local", "own", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rounds"] == 2 and found["counted"] == {"rome": 2, "oslo": 2}
    assert "round 2/2  2 of 2 answered" in done.stderr
    if server == STRATEGY:  # what the app does after its rounds is waited for
        assert (tmp_path / "runs/deploy-own/server/saved").exists()


@pytest.mark.slow
def test_a_fleet_dies_with_who_started_it_by_kill_9(tmp_path):
    (tmp_path / "study.toml").write_text(QUADRATIC)
    command = "-m focusfl.cli deploy local study.toml --clients 2 --set rounds=1000"
    with subprocess.Popen(
        [sys.executable, *command.split()], cwd=tmp_path, stderr=subprocess.PIPE,
        text=True,
    ) as running:  # fmt: skip
        while "begin" not in running.stderr.readline():
            pass
        begun = begun_in(tmp_path / "runs/deploy-study")
        running.kill()
    lines = ownership.started(tmp_path / "runs/deploy-study")
    assert len(lines) == 4
    assert all(ended(pid) for pid in (begun["pid"], *(line.pid for line in lines)))


@pytest.mark.slow
def test_ridge_with_tls_is_exact_in_60_rounds_and_equals_simulate(tmp_path):
    this = deployed(tmp_path, RIDGE, 4)
    _, _, outcome = run(tmp_path, this, tls=True)
    assert outcome.metrics["distance"] <= 1e-10
    assert outcome.masks.shape == (60, 4) and outcome.late == 0
    assert np.abs(outcome.x - expected(this, outcome.masks).x).max() <= 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["focus", "scaffold"])
def test_chaos_on_stock_nodes_with_tls(tmp_path, algorithm):
    """SuperNodes with a key are let in again only after Flower has missed them."""
    lr = 0.5 if algorithm == "scaffold" else 0.15
    changes = "rounds=60", f"lr={lr}"
    this = deployed(tmp_path, QUADRATIC, 4, *changes, algorithm=algorithm)
    plan = {8: "node:1", 14: "superlink", 20: "server", 26: "node:3", 32: "node:0"}
    _, kinds, outcome = run(
        tmp_path, this, plan, tls=True, settings={"deadline": 30.0, "patience": 60.0}
    )
    assert kinds.count("begin") == 2 and kinds.count("chaos") == 5
    assert outcome.metrics["distance"] <= 1e-8
    assert outcome.gap <= 1e-9


@pytest.mark.slow
def test_a_site_that_loses_everything_is_sent_its_state(tmp_path):
    this = deployed(tmp_path, QUADRATIC, 3)
    _, kinds, outcome = run(tmp_path, this, {5: "disk:1"})
    assert "missing" in kinds and outcome.generations == 1
    assert outcome.metrics["distance"] <= 1e-8 and outcome.gap <= 1e-9


@pytest.mark.slow
def test_an_unregistered_key_is_not_let_in(tmp_path):
    from focusfl.deploy import certificates
    from focusfl.deploy.fleet import Fleet

    this = deployed(tmp_path, QUADRATIC, 2)
    fleet = Fleet(tmp_path / "run", this.sites, tls=True)
    with fleet:
        for site in this.sites:
            fleet.nodes[site].kill()
        keys = tmp_path / "run" / "keys"
        certificates.make(keys, [], ["intruder"])
        (keys / "intruder" / "key").replace(keys / "site-0" / "key")
        fleet.start_node("site-0")
        end = time.monotonic() + 120
        while fleet.nodes["site-0"].alive:
            assert time.monotonic() < end, fleet.nodes["site-0"].words()
            time.sleep(0.1)
        assert "Failed to initialize" in fleet.nodes["site-0"].words()


@pytest.mark.slow
def test_sites_with_numpy_and_flwr_alone_take_part(tmp_path):
    """In an environment of their own, where focusfl came without what it depends on."""
    from focusfl.deploy.fleet import Fleet
    from focusfl.deploy.local import Driver

    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "pip", "install", "--quiet"]
    subprocess.run([*pip, "flwr>=1.41,<2", "numpy"], check=True)
    subprocess.run([*pip, "--no-deps", ROOT], check=True)
    listed = subprocess.check_output([venv / "bin" / "pip", "list"], text=True).lower()
    assert not {"jax", "jaxtyping", "torch"} & set(listed.split())
    apps.init(tmp_path / "app")
    sites = apps.settings(tmp_path / "app")["sites"].split()
    fleet = Fleet(tmp_path / "run", sites)
    for site in sites:
        env = fleet.nodes[site].env
        fleet.nodes[site].env = {**env, "PATH": f"{venv / 'bin'}:{env['PATH']}"}
        fleet.nodes[site].command[0] = str(venv / "bin" / "flower-supernode")
    project, said = tmp_path / "app" / "pyproject.toml", []
    project.write_text(project.read_text().replace("rounds = 30", "rounds = 5"))
    with fleet:
        Driver(fleet, tmp_path / "app", said.append).drive()
    counted = [event["counted"] for event in said if event["event"] == "round"]
    assert [sorted(sites) for _ in range(5)] == [sorted(each) for each in counted]
    *_, tested = [event for event in said if event["event"] == "evaluation"]
    assert tested["sites"] == 4 and tested["metrics"]["accuracy"] > 0.7
    assert "clientapp" in fleet.nodes[sites[0]].words(1000)


@pytest.mark.slow
def test_hospitals_learn_in_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("FOCUSFL_DATA", str(tmp_path))  # no data there: tables are drawn
    monkeypatch.setenv("FOCUSFL_CACHE", str(tmp_path))
    said = []
    outcome = local_app(ROOT / "examples" / "hospitals", tmp_path / "run", said.append)
    tests = [event["metrics"] for event in said if event["event"] == "evaluation"]
    found = [metrics["accuracy"] for metrics in tests]
    assert len(found) >= 3 and found[-1] > 0.85
    assert (outcome.masks.mean(0) > 0.5).all()


@pytest.mark.slow
@pytest.mark.needs("strace")
def test_no_process_connects_to_anywhere_but_this_machine(tmp_path):
    (tmp_path / "study.toml").write_text(QUADRATIC)
    watch = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", "trace.txt"]
    command = "-m focusfl.cli deploy local study.toml --clients 2 --tls --set rounds=2"
    subprocess.run([*watch, sys.executable, *command.split()], cwd=tmp_path, check=True)
    trace = (tmp_path / "trace.txt").read_text()
    connected = re.findall(r"connect\(\d+, \{sa_family=(\w+)(?:, ([^}]*))?", trace)
    there = [where for kind, where in connected if kind in ("AF_INET", "AF_INET6")]
    assert len(there) > 20
    assert all('inet_addr("127.0.0.1")' in where for where in there)


@pytest.mark.slow
def test_coded_private_and_secure_at_once_until_budgets_are_spent(tmp_path):
    three = QUADRATIC + (
        '[compression]\nkind = "fixed_point"\nbits = 40\nfraction = 30\n[secure]\n'
        '[privacy]\nclip = 1\nnoise = 20\nlevel = "client"\nbudget = 0.3\n'
        'accountant = "rdp"\n'
    )
    this = deployed(tmp_path, three, 3, "lr=0.01")
    visits = this.problem.visits(1)
    said, kinds, outcome = run(tmp_path, this)
    assert kinds.count("round") == visits == len(outcome.masks) < this.study.rounds
    assert outcome.masks.all() and outcome.gap < 1e-8
    # With one that has none left there is no sum of three: others may not have been asked.
    assert "of 3 sites have spent their privacy budgets" in outcome.why[0]
    spent = ff.privacy.epsilon(20.0, visits, accountant="rdp")
    told = [event for event in said if event["event"] == "round"][-1]["epsilon"]
    assert told == {site: pytest.approx(spent) for site in this.sites}
    (row,) = store.Study.load(tmp_path / "run").runs
    assert spent <= 0.3 and row.curves["epsilon"][-1] == pytest.approx(spent)

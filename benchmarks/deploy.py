"""Seconds per round on Flower: FOCUS with its protocol, and Flower's own FedAvg.

The same SuperLink and SuperNodes on loopback serve both, by turns; clients compute one
gradient each. Prints seconds per round, their ratio, and what the protocol keeps on
disk per model.

python benchmarks/deploy.py [--clients 4] [--rounds 6] [--turns 2]
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from focusfl.deploy.fleet import Fleet

SIZES = (100, 550_000)
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "One side of a benchmark"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "focusfl"

[tool.flwr.app.components]
serverapp = "{name}.server:app"
clientapp = "{name}.client:app"

[tool.flwr.app.config]
"""

FEDAVG = {
    "server": """\
import json
import time

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    config, times = context.run_config, [time.time()]
    clients = config["clients"]

    class Timed(FedAvg):
        def aggregate_train(self, server_round, replies):
            found = super().aggregate_train(server_round, replies)
            times.append(time.time())
            return found

    strategy = Timed(
        fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
    )
    model = ArrayRecord([np.zeros(config["dim"], np.float32)])
    strategy.start(grid, model, num_rounds=config["rounds"])
    with open(config["out"], "w") as file:
        json.dump(np.diff(times).tolist(), file)
""",
    "client": """\
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    (x,) = message.content["arrays"].to_numpy_ndarrays()
    x = x - 0.1 * (x - context.node_config["partition-id"])
    content = {"arrays": ArrayRecord([x]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)
""",
}

FOCUS = {
    "server": """\
import json
from pathlib import Path

import numpy as np

from focusfl import Focus
from focusfl.flower import Job, server_app


def job(context):
    config = context.run_config
    clients = config["clients"]
    sites = tuple(f"site-{i}" for i in range(clients))
    params = np.zeros(config["dim"], np.float32)
    return Job(Focus(), params, sites, config["rounds"], 0.1, folder=config["folder"],
               minimum=clients)


app = server_app(job, own=["clients", "dim"])
""",
    "client": """\
from focusfl import Focus
from focusfl.flower import client_app


def load(context):
    mine = context.node_config["partition-id"]
    return lambda x, batch: x - mine


app = client_app(load, Focus())
""",
}


def write(folder: Path, name: str, sides: dict[str, str], config: dict) -> Path:
    """Write an app; give its folder."""
    package = folder / name
    package.mkdir(parents=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    text = PROJECT.format(name=name) + "\n".join(lines) + "\n"
    (folder / "pyproject.toml").write_text(text)
    (package / "__init__.py").write_text("")
    for side, code in sides.items():
        (package / f"{side}.py").write_text(code)
    return folder


def wait(path: Path, done) -> None:
    """Wait until a file says that a run is over."""
    until = time.monotonic() + 900
    while not (path.exists() and done(path.read_text())):
        if time.monotonic() > until:
            raise SystemExit(f"nothing in {path}")
        time.sleep(0.5)


def fedavg(fleet: Fleet, place: Path, config: dict) -> list[float]:
    """Seconds of every round of Flower's own."""
    out = place / "times.json"
    fleet.run(write(place / "app", "plain", FEDAVG, {**config, "out": str(out)}))
    wait(out, lambda text: text.endswith("]"))
    return json.loads(out.read_text())


def focus(fleet: Fleet, place: Path, config: dict) -> list[float]:
    """Seconds of every round of ours."""
    more = {"folder": str(place / "server"), "job": place.name}
    fleet.run(write(place / "app", "tracked", FOCUS, {**config, **more}))
    events = place / "server" / place.name / "events.jsonl"
    wait(events, lambda text: '"event": "end"' in text)
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return [line["seconds"] for line in lines if line["event"] == "round"]


def kept(fleet: Fleet, place: Path, dim: int) -> tuple[float, float]:
    """What is on disk, in models: at the largest site, and at the server."""
    sites = [
        sum(f.stat().st_size for f in (fleet.state(site) / place.name).glob("*"))
        for site in fleet.sites
    ]
    server = sum(f.stat().st_size for f in (place / "server" / place.name).glob("*"))
    return max(sites) / (4 * dim), server / (4 * dim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.clients, options.rounds, options.turns = 2, 2, 1
    sites = [f"site-{i}" for i in range(options.clients)]
    with tempfile.TemporaryDirectory(prefix="focusfl-") as scratch:
        folder = Path(scratch)
        with Fleet(folder / "fleet", sites) as fleet:
            for dim in SIZES[:1] if options.quick else SIZES:
                config = {"clients": options.clients, "rounds": options.rounds}
                config["dim"] = dim
                theirs, ours = [], []
                for turn in range(options.turns):
                    place = folder / f"d{dim}-{turn}"
                    mine = place / f"ours-{dim}-{turn}"
                    # The first round waits for nodes, and starts are not rounds.
                    theirs += fedavg(fleet, place / "plain", config)[1:]
                    ours += focus(fleet, mine, config)[1:]
                    site, server = kept(fleet, mine, dim)
                slow, fast = statistics.median(theirs), statistics.median(ours)
                print(
                    f"d = {dim:,}, {options.clients} clients: FedAvg {slow:.2f} s a "
                    f"round (least {min(theirs):.2f}), FOCUS {fast:.2f} s (least "
                    f"{min(ours):.2f}), ratio {fast / slow:.2f}; on disk, in models: "
                    f"{site:.2f} at a site, {server:.2f} at the server",
                    flush=True,
                )


if __name__ == "__main__":
    main()

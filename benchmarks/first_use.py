"""What a first use costs: imports, --help, and a PyTorch model's first round.

Each line is a fresh process, with seconds by the clock and of the CPU. The model runs
twice: with an empty cache of compiled programs, and with what the first has left there.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = """
import json, time
marks = {}
def mark(name, start=[time.perf_counter(), time.process_time()]):
    now = [time.perf_counter(), time.process_time()]
    marks[name] = [b - a for a, b in zip(start, now)]
    start[:] = now

import torch
import focusfl as ff
mark("import")
torch.manual_seed(0)
module = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Flatten(), torch.nn.Linear(256, 10),
)
clients = [(torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,))) for _ in range(8)]
mark("data")
problem = ff.problems.from_torch(module, torch.nn.CrossEntropyLoss(), clients, batch_size=16)
mark("from_torch")
who = ff.participation.Uniform(m=4)
ff.simulate(ff.Focus(), problem, who, rounds=3, lr=0.01, local_steps=2)
mark("first rounds")
print(json.dumps(marks))
"""
IMPORT = "import focusfl"
HELP = "from focusfl.cli import main; main(['--help'])"


def measure(code: str, **environment: str) -> dict:
    """Run code in a process of its own; give its seconds, and those of its parts."""
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, check=True, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    wall = time.perf_counter() - start
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    last = (done.stdout.splitlines() or [""])[-1]
    parts = json.loads(last) if last.startswith("{") else {}
    return {"wall": wall, "cpu": cpu, "parts": parts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many (3)")
    options = parser.parse_args()
    repeat = 1 if options.quick else options.repeat
    found: dict[str, list[dict]] = {}
    for _ in range(repeat):  # by turns, as other work may load the machine for a while
        found.setdefault("import focusfl", []).append(measure(IMPORT))
        found.setdefault("focusfl --help", []).append(measure(HELP))
        if options.quick:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a torch model", "the same again"):
                found.setdefault(name, []).append(measure(MODEL, FOCUSFL_CACHE=folder))
    best = {name: min(runs, key=lambda run: run["cpu"]) for name, runs in found.items()}
    print(f"{'':28}{'wall s':>8}{'CPU s':>8}")
    for name, run in best.items():
        print(f"{name:28}{run['wall']:8.2f}{run['cpu']:8.2f}")
        for part, (wall, cpu) in run["parts"].items():
            print(f"    {part:24}{wall:8.2f}{cpu:8.2f}")
    if options.json:
        options.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()

"""Studies as a person sees them run: in a terminal of 80 columns, in a pipe."""

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from threading import Timer

import pytest
from command_line import ENDED

STUDY = """
rounds = 600
lr = [1e-3, 2e-3]
local_steps = 3
seeds = 2

[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12

[participation.everybody_of_a_long_name]
kind = "full"

[participation.some]
kind = "uniform"
m = 2

[algorithms.focus]

[algorithms.fedavg]
"""
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(f"no module named {name}: hidden by the test")

sys.meta_path.insert(0, Hidden())
"""
EACH = (
    HIDE
    + """
import contextlib, io, json, os
from focusfl.cli import main

for line in sys.stdin:
    folder, *words = json.loads(line)
    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
)


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def command(*words):
    return [sys.executable, "-m", "focusfl.cli", *map(str, words)]


def in_a_terminal(words, folder, columns=80):
    """Run in a terminal of so many columns; give what was written to it."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    running = subprocess.Popen(
        command(*words), cwd=folder, stdout=theirs, stderr=theirs,
        env=clean | {"TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the terminal is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert running.wait(timeout=900) == 0
    return b"".join(parts).decode(errors="replace")


def test_eighty_columns_are_enough_and_compiling_is_said(study, tmp_path):
    text = CODES.sub("", in_a_terminal(["run", study], tmp_path))
    lines = re.split(r"[\r\n]+", text)
    assert max(len(line) for line in lines if not line.startswith("written:")) <= 80
    assert "…" not in text.split("verdict")[1]  # nothing of the table is left out
    bars = [line for line in lines if "━" in line]
    assert any("compiling" in line and "some · FOCUS" in line for line in bars)
    counts = {found[1] for line in bars if (found := re.search(r"([\d,]+)/2,400", line))}
    assert len(counts) > 1, "no bar has moved"
    # No number is cut: a line of the table still has its error and its verdict.
    table = next(line for line in lines if line.startswith("  some") and "FOCUS" in line)
    assert re.search(r"\d\.\de-\d+ .* exact *$", table)


def test_a_pipe_gets_lines_and_no_bars(study, tmp_path):
    done = subprocess.run(
        command("run", study, "--participation", "some"),
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "running some · FOCUS · 2 step sizes · 2 seeds: compiling" in done.stderr
    assert "some · FOCUS (lr 0.002, best of 2): exact, error " in done.stderr
    assert "━" not in done.stderr and not CODES.search(done.stderr)
    assert "some: FOCUS " in done.stdout
    assert "Each at the best step of its grid, medians over 2 seeds." in done.stdout


SHOWN = {
    "run study.toml": "verdict",
    "demo --set rounds=200": "verdict",
    "reproduce quadratics --algorithms focus": "verdict",
}
ASKED = ["run study.toml --out out --quiet", "report out", "plot out"]


@pytest.fixture(scope="module")
def without_matplotlib(tmp_path_factory):
    """What these commands leave in their folders and say where matplotlib is not
    installed: in one process, which imports and compiles once."""
    folders = {line: tmp_path_factory.mktemp("shown") for line in SHOWN}
    asked = tmp_path_factory.mktemp("asked")
    for folder in (*folders.values(), asked):
        (folder / "study.toml").write_text(STUDY)
    lines = [(folder, f"{line} --out out") for line, folder in folders.items()]
    lines += [(asked, line) for line in ASKED]
    done = subprocess.run(
        [sys.executable, "-c", EACH], text=True, capture_output=True,
        input="\n".join(json.dumps([str(f), *line.split()]) for f, line in lines),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {words: (f, *s) for (f, words), s in zip(lines, said, strict=True)}


@pytest.mark.parametrize("words, says", SHOWN.items())
def test_without_matplotlib_everything_but_the_figure_is_shown(without_matplotlib, words, says):
    folder, code, out, err = without_matplotlib[f"{words} --out out"]
    assert code == 0, err
    assert says in out and "written: " in out
    last = err.splitlines()[-1]
    assert last.startswith("no figure") and "matplotlib; get it" in last
    assert "Traceback" not in err
    kinds = {file.suffix for file in (folder / "out").iterdir() if file.is_file()}
    assert ".png" not in kinds and ".json" in kinds
    assert ".html" in kinds


def test_without_matplotlib_a_figure_that_was_asked_for_is_one_line(without_matplotlib):
    ends = [without_matplotlib[words][1:] for words in ASKED]
    assert [code for code, *_ in ends] == [0, 0, 2], ends
    *_, err = ends[-1]
    assert err.startswith("focusfl: figures need matplotlib")
    assert len(err.splitlines()) == 1


SLOW_FIRST = STUDY.replace("lr = [1e-3, 2e-3]", "lr = 2e-3").replace(
    "[algorithms.focus]",
    "[algorithms.slow]\nkind = 'focus'\nlocal_steps = 3_000_000\n\n[algorithms.focus]",
)


def test_an_interrupt_keeps_what_has_ended_though_it_was_not_first(tmp_path):
    """The first group takes for ever; what ended after it began is not lost."""
    (tmp_path / "study.toml").write_text(SLOW_FIRST)
    # A process started in the background may have inherited deafness to the signal.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from focusfl.cli import main; main(['run', 'study.toml', '--out', 'out'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as running:
        said = ""
        late = Timer(600, running.kill)  # seconds, on a machine however busy
        late.start()
        while len(ENDED.findall(said)) < 2:
            line = running.stderr.readline()
            assert line, "nothing has ended in ten minutes"
            said += line
        late.cancel()
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        rest = running.communicate(timeout=600)[1]
    assert running.returncode == 130 and "Traceback" not in rest
    ended = len(ENDED.findall(said + rest))
    told = re.search(r"(\d+) of 12 runs have ended and are kept in out", rest)
    assert told and int(told[1]) == 2 * ended >= 4  # two seeds each
    assert len(list(Path(tmp_path, "out", "runs").glob("*.parquet"))) == ended
    again = subprocess.run(
        command("run", "study.toml", "--out", "out", "--resume", "--json",
                "--set", "algorithms.slow.local_steps=3"),
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["runs"]) == 12
    assert len(re.findall("^running .*: compiling$", again.stderr, re.M)) == 6 - ended

"""Studies as TOML: what is wrong is said once, with its line and key."""

import json
import re

import numpy as np
import pytest

from focusfl.cli import main
from focusfl.studies import spec, toml
from focusfl.studies.schema import json_schema

GOOD = """\
name = "good"
rounds = 20
lr = [1e-3, 2e-3]
local_steps = 3
seeds = 2
eval_every = 2
on_empty = "skip"

[stop]
tolerance = 1e-9
vectors = 1e6

[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12
penalty = 0.1

[participation.some]
kind = "uniform"
m = 2

[participation.coins]
kind = "bernoulli"
p = [
    0.2, 0.4,  # a list over several lines
    0.6, 0.8,
]
lr = 1e-3

[participation.follows]
kind = "bernoulli"
by_rarity = { p_min = 0.1, p_max = 0.9 }

[algorithms.focus]
warm_start = true

[algorithms.slow]
kind = "fedavg"
server_lr = 0.5
lr = 1e-4
local_steps = [1, 2]
noise = 0.01
"""
LINES = GOOD.splitlines()
KEYS = [  # lines that set one key to one value
    n for n, line in enumerate(LINES) if re.match(r"^\w+ = [^\[{]*$", line)
]


def broken():
    """Studies that are wrong in one place, and the line of it."""
    for n in KEYS:
        key, value = LINES[n].split(" = ")
        if key != "kind":
            yield n, f"{key}x = {value}", "unknown key"
        if key == "kind":
            yield n, f'{key} = "nothing"', "unknown kind"
            yield n, f"{key} = 7", "unknown kind"
        elif key == "warm_start":
            yield n, f'{key} = "yes"', "must be true or false"
        elif value.startswith('"'):
            yield n, f"{key} = 7", "must be"
        else:
            yield n, f'{key} = "many"', "must be"
            yield n, f"{key} = {{ a = 1 }}", "must be"
            yield n, f"{key} = true", "must be"
    for n in (1, 3, 4, 5):
        yield n, LINES[n].split(" = ")[0] + " = 0", "at least 1"
        yield n, LINES[n].split(" = ")[0] + " = 2.5", "a whole number"
    for value in ("0", "-1e-3", "nan", "inf", "[]", "[1e-3, 1e-3]", "[1e-3, 'x']"):
        yield 2, f"lr = {value}", "lr must"
    yield 4, "seeds = [-1]", "seeds must be"
    yield 6, 'on_empty = "halt"', 'on_empty must be "skip" or "step"'


BROKEN = list(broken())


def run(folder, text, capsys):
    file = folder / "study.toml"
    file.write_text(text)
    code = main(["run", str(file), "--out", str(folder / "out")])
    said = capsys.readouterr()
    assert said.out == "" and not (folder / "out").exists()
    return code, said.err


def test_there_are_fifty_ways_to_be_wrong():
    assert len(BROKEN) >= 50


@pytest.mark.parametrize("n, line, words", BROKEN, ids=[line for _, line, _ in BROKEN])
def test_what_is_wrong_is_said_once_with_line_and_key(n, line, words, tmp_path, capsys):
    lines = [*LINES[:n], line, *LINES[n + 1 :]]
    code, said = run(tmp_path, "\n".join(lines), capsys)
    assert code == 2
    assert said.count("\n") == 1, said
    assert f"study.toml, line {n + 1}: " in said
    assert words in said and line.split(" = ")[0] in said


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("rounds = 20\n", "", "study.toml: the study needs rounds."),
        ('"good"', '"go/od"', "line 1: name must be at most 100 letters without"),
        ('"good"', '"a\\\\b"', "slashes or control characters, as it names a folder"),
        ('"good"', '"go\\nod"', r"got 'go\nod'."),
        ('"good"', '"\\u001b[31m"', "line 1: name must"),
        ('"good"', '".."', "line 1: name must"),
        ('"good"', '"' + 101 * "a" + '"', "line 1: name must"),
        ("ion.some]", 'ion."so\\u001b[31m"]', r"got 'so\x1b[31m'."),
        ("[algorithms.slow]", '[algorithms."a\\tb"]', "a name in [algorithms] must be"),
        ("m = 2\n", "", "line 20: [participation.some] needs m."),
        ("m = 2\n", "m = 9\n", "line 20: [participation.some]: m must not exceed"),
        ('kind = "ridge"\n', "", "line 13: [problem] must name its kind: one of"),
        ("p_min", "p_mim", "line 34: unknown key in [participation.follows.by_rarity]"),
        ("seeds = 2", "seeds = 2\nseed = 1", "line 5: the study has both seed and"),
        ("[algorithms.focus]", "[algorithms.fcus]", "Did you mean 'focus'?"),
        ("[problem]", "[problem", "is not TOML"),
        ('"ridge"', '"rigde"', "Did you mean 'ridge'?"),
        ("dim = 6", "dims = 6", "Did you mean 'dim'?"),
        ("server_lr = 0.5", "server_lr = 0", "server_lr must be positive"),
        ("server_lr = 0.5", "cutoff = 5", "unknown key in [algorithms.slow]"),
        ("m = 2", "m = 2\np = 0.5", "unknown key in [participation.some]: 'p'"),
        ("0.2, 0.4,", "0.2, 1.4,", "p must lie in (0, 1]; got 1.4"),
        ("0.2, 0.4,", "0.2,", "p must have one entry per client; got 3"),
        ("tolerance", "tolerence", "line 10: unknown key in [stop]: 'tolerence'"),
        ("tolerance = 1e-9", "tolerance = 0", "stop.tolerance must be positive"),
        ("tolerance = 1e-9", "accuracy = 0.9", "line 9: [stop]: stop: unknown metric"),
        ("tolerance = 1e-9", "accuracy = 90", "[stop]: accuracy must be a share of at"),
        ("tolerance = 1e-9", "below = { los = 1 }", "Did you mean 'loss'?"),
        ("tolerance = 1e-9", "above = 3", "[stop.above] must be a table; got 3."),
        (GOOD[GOOD.index("[algorithms.focus]") :], "[algorithms]\n",
         "[algorithms] must hold at least one table"),
        (GOOD[GOOD.index("[algorithms.focus]") :], "[algorithms]\nfocus = 1\n",
         "line 37: [algorithms.focus] must be a table; got 1."),
    ],
    ids=lambda value: value[:25].strip(),
)  # fmt: skip
def test_other_ways(old, new, said, tmp_path, capsys):
    assert old in GOOD
    code, found = run(tmp_path, GOOD.replace(old, new), capsys)
    assert code == 2 and said in found


def test_a_change_is_named_as_it_was_typed(tmp_path, capsys):
    file = tmp_path / "study.toml"
    file.write_text(GOOD)
    assert main(["run", str(file), "--set", "problem.dim=six"]) == 2
    said = capsys.readouterr().err
    assert "--set problem.dim=six: problem.dim must be a whole number" in said


def test_a_file_of_a_bad_name_needs_a_name_for_its_study(tmp_path, capsys):
    file = tmp_path / "a\nb.toml"
    file.write_text(GOOD.replace('name = "good"', ""))
    assert main(["run", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "name must be at most 100 letters" in capsys.readouterr().err
    assert spec.load(file, ["name=größer als 1"]).name == "größer als 1"


def test_a_good_study_says_what_it_says(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(GOOD)
    study = spec.load(file, ["algorithms.focus.lr='auto'"])
    assert study.seeds == (0, 1) and study.eval_every == 2
    assert study.step_sizes("some", "focus") == ("auto",)
    assert study.step_sizes("coins", "slow") == (1e-4,)
    assert spec.load(file).step_sizes("coins", "focus") == (1e-3,)
    assert spec.load(file).step_sizes("some", "focus") == (1e-3, 2e-3)
    assert study.steps_of("slow") == (1, 2) and study.steps_of("focus") == (3,)
    assert study.stop.tolerance == 1e-9 and study.stop.seconds is None


def test_lines_are_found_in_any_toml():
    text = 'a.b = 1\n"c d" = """\nx = 3\n"""\n[t]\ne = [\n  1,\n]\nf = 2\n[t."u v"]\ng=1\n'
    lines = toml._lines(text)
    assert lines["a", "b"] == 1 and lines["c d",] == 2 and ("x",) not in lines
    assert lines["t",] == 5 and lines["t", "f"] == 9 and lines["t", "u v", "g"] == 11


def test_the_schema_for_editors_knows_every_kind(capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == json.loads(json.dumps(json_schema()))
    assert "warm_start" in schema["$defs"]["algorithms.focus"]["properties"]
    assert schema["properties"]["algorithms"]["properties"]["focus"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("privacy", ["", "[privacy]\nclip = 1.0\nnoise = 1.0\n"])
def test_clients_of_a_network_are_rare_by_their_classes(tmp_path, privacy):
    y = np.repeat([0, 0, 0, 1, 1, 2], 20)  # each client has one class; 2 is rarest
    x = np.random.default_rng(0).standard_normal((len(y), 3))
    np.savez(tmp_path / "own.npz", x=x, y=y, client=np.repeat(np.arange(6), 20))
    file = tmp_path / "study.toml"
    file.write_text(
        "rounds = 2\nlr = 0.1\n"
        + privacy
        + """
[problem]
kind = "mlp"
data = "own.npz"
batch_size = 4

[participation.rare]
kind = "bernoulli"
by_rarity = { p_min = 0.1, p_max = 0.9 }

[algorithms.focus]
"""
    )
    p = spec.load(file).participation["rare"].participation.marginals(6).p
    assert p[5] == p.min() == 0.1 and p[:3].min() > p[3:5].max()


def test_rarity_needs_an_optimum_or_classes(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(GOOD.replace('"ridge"', '"robust"').replace("penalty = 0.1\n", ""))
    with pytest.raises(ValueError, match="optimum is known exactly, or .* labels y"):
        spec.load(file)

"""`focusfl new`: write a study, or a package with a part of one's own, to begin from."""

import argparse
import importlib.util
import json
import keyword
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from focusfl.core.registry import ALGORITHMS, PARTICIPATION, PROBLEMS, Registry, check_name

PARTS: dict[str, Registry] = {
    "algorithm": ALGORITHMS,
    "participation": PARTICIPATION,
    "problem": PROBLEMS,
}


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command."""
    new = command(
        "new", _new, "write a study, or a package with your own part, to begin from",
        "focusfl new study.toml, or focusfl new algorithm my_method",
    )  # fmt: skip
    new.add_argument(
        "what", metavar="STUDY.toml|algorithm|problem|participation",
        help="TOML file to write, or the kind of part",
    )  # fmt: skip
    new.add_argument("part", metavar="NAME", nargs="?", help="of the part, and of its package")


def _new(options: argparse.Namespace) -> int:
    if options.what in PARTS:
        target, then = _package(options.what, options.part), "pip install -e {0} && pytest {0}"
    else:
        target, then = _study(options.what, options.part), "focusfl run {0}"
    if options.json:
        files = sorted(map(str, target.rglob("*.*"))) if target.is_dir() else [str(target)]
        print(json.dumps({"files": files}))
    else:
        print(f"written: {target}\ntry it: {then.format(target)}")
    return 0


def _study(what: str, name: str | None) -> Path:
    """Write a study with comments."""
    from focusfl.core.files import write
    from focusfl.studies.spec import STUDIES

    target = Path(what)
    if target.exists():
        raise ValueError(f"{target} exists; name another file.")
    if target.suffix != ".toml":
        raise ValueError(
            f"a study is a .toml file; got {target}. For a part of your own say "
            f"{', '.join(PARTS)}, and its name."
        )
    if name is not None:
        raise ValueError(f"new {target} takes no name; got {name!r}.")
    return write(target, (STUDIES / "new.toml").read_text())


def _package(what: str, name: str | None) -> Path:
    """Write a package with a part that works: its module, entry point, test and README."""
    registry = PARTS[what]
    if name is None:
        raise ValueError(f"new {what} needs a name, as in focusfl new {what} my_{what}.")
    check_name(what, name)
    target = Path(name)
    if target.exists():
        raise ValueError(f"{target} exists; choose another name.")
    if name in registry:
        raise ValueError(f"{registry.what} {name!r} exists already; choose another name.")
    if keyword.iskeyword(name) or importlib.util.find_spec(name) is not None:
        raise ValueError(f"{name!r} is a word or a module of Python already; choose another name.")
    words = {
        "NAME": name,
        "CLASS": "".join(word.capitalize() for word in name.split("_")),
        "GROUP": registry.group,
        "WHAT": registry.what,
        "STUDY": STUDY[what].replace("NAME", name),
    }
    # Under another name first: the folder is there whole or not at all.
    part = Path(tempfile.mkdtemp(prefix=f".{name}.", dir="."))
    try:
        for file, text in {
            "pyproject.toml": PYPROJECT,
            "README.md": README,
            f"{name}.py": MODULE[what],
            f"tests/test_{name}.py": TEST[what],
        }.items():
            for word, meaning in words.items():
                text = text.replace(word, meaning)
            (part / file).parent.mkdir(exist_ok=True)
            (part / file).write_text(text)
        part.chmod(0o755)
        os.rename(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return target


PYPROJECT = """\
[build-system]
requires = ["setuptools>=70"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME"
version = "0.1.0"
description = "A WHAT for focusfl"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["focusfl"]

[project.optional-dependencies]
test = ["pytest>=8"]

[project.entry-points."GROUP"] # by which focusfl finds it
NAME = "NAME:CLASS"

[tool.setuptools]
py-modules = ["NAME"]
"""

README = """\
# NAME

A WHAT for focusfl. `NAME.py` is all of it; replace what it does by your own.

```bash
pip install -e ".[test]"
pytest
focusfl list        # has NAME now
```

A study names it:

```toml
STUDY```
"""

STUDY = {
    "algorithm": "[algorithms.NAME]\nlr = 1e-3\n",
    "participation": "[participation.NAME]\nchance = 0.5\n",
    "problem": '[problem]\nkind = "NAME"\nnum_clients = 8\n',
}

MODULE = {
    "algorithm": '''\
"""NAME: an algorithm for focusfl. As written it is FOCUS; replace what it does by your own."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from focusfl.core import Algorithm, tree
from focusfl.core.tree import Tree


class Server(NamedTuple):
    x: Tree  # the model
    y: Tree  # sum over all clients of the gradient that each has stored


class Client(NamedTuple):
    grad: Tree  # stored between rounds


class Local(NamedTuple):
    x: Tree
    grad: Tree  # the last gradient of this round


@dataclass(frozen=True)
class CLASS(Algorithm[Server, Client, Local]):
    """Step along the sum of everybody's last gradient, however old it is."""

    # What a deployment must know; see docs/add-an-algorithm.md of focusfl.
    accepts_stale_model = True
    sends_state = False

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params, zero), Client(zero)

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        return Local(down["x"], client.grad)

    def step(self, local, grad_fn, batch, rd):
        grad = grad_fn(local.x, batch)
        return Local(tree.axpy(-rd.lr, tree.sub(grad, local.grad), local.x), grad)

    def push(self, client, down, local, rd):
        return Client(local.grad), {"change": tree.sub(local.grad, client.grad)}

    def update(self, server, total, rd):
        # `total` is the sum of the pushes: who is absent has changed nothing.
        y = tree.add(server.y, total["change"])
        return Server(tree.axpy(-rd.lr, y, server.x), y)

    def state_after(self, client, up, down, rd):
        return Client(tree.add(client.grad, up["change"]))

    def tracked(self, server, client):
        return {"y": client.grad}

    def max_exact_lr(self, L, local_steps):
        return math.inf if local_steps == 1 else 0.0  # claim no more than you can derive
''',
    "participation": '''\
"""NAME: a participation model for focusfl. As written, everybody tosses the same coin."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.validation import check_positive, check_share
from focusfl.participation import Marginals, Participation


@dataclass(frozen=True, eq=False)
class CLASS(Participation):
    """Each client takes part with the same chance, on its own."""

    chance: float = 0.5  # of a round, in (0, 1]

    def __post_init__(self):
        check_positive("chance", self.chance)
        check_share("chance", self.chance)

    def draw(self, state, rounds, num_clients, rng):
        # A row after the other: what a round draws does not depend on how many follow.
        coins = rng.random((len(rounds), num_clients))
        return state, [np.flatnonzero(row < self.chance) for row in coins]

    def marginals(self, num_clients):
        p = np.full(num_clients, self.chance)
        somebody = 1 - (1 - self.chance) ** num_clients  # shares of a round sum to 1, if not empty
        return Marginals(p, np.full(num_clients, somebody / num_clients))
''',
    "problem": '''\
"""NAME: a problem for focusfl. As written, every client wants the model at a point of its own."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from focusfl.core.validation import check_count
from focusfl.problems import Objective, Problem


@dataclass(frozen=True)
class Distances(Objective):
    """f(x) = scale |x - point|^2 / 2, by operators that every array library has."""

    def grad(self, x, data, batch):
        del batch  # all data, every time
        return data["scale"] * (x - data["point"])

    def evaluate(self, x, eval_data):
        away = x - eval_data["point"]
        error = x - eval_data["optimum"]
        grad = (eval_data["scale"][:, None] * away).mean(0)
        return {
            "distance": (error @ error) ** 0.5 / eval_data["unit"],
            "loss": (eval_data["scale"] * (away**2).sum(1)).mean() / 2,
            "grad_norm": (grad @ grad) ** 0.5,
        }


@dataclass(frozen=True, eq=False)
class CLASS(Problem):
    """Clients whose losses are squared distances from points of their own."""

    num_clients: int = 8
    dim: int = 5  # numbers in the model
    seed: int = 0  # of what is drawn

    def __post_init__(self):
        for name in ("num_clients", "dim"):
            check_count(name, getattr(self, name))

    @property
    def objective(self):
        return Distances()

    @cached_property
    def data(self):
        """Leaves (clients, ...): row i is what client i alone can see."""
        rng = np.random.default_rng(self.seed)
        return {
            "scale": 1 + rng.random(self.num_clients),
            "point": rng.standard_normal((self.num_clients, self.dim)),
        }

    @property
    def x0(self):
        return np.zeros(self.dim)

    @cached_property
    def optimum(self):
        scale = self.data["scale"][:, None]
        return (scale * self.data["point"]).sum(0) / scale.sum()

    @property
    def eval_data(self):
        unit = np.float64(np.linalg.norm(self.optimum))
        return {**self.data, "optimum": self.optimum, "unit": unit}
''',
}

TEST = {
    "algorithm": """\
import focusfl as ff
import numpy as np
from focusfl.conformance import check_contract
from NAME import CLASS


def test_it_keeps_the_contract():
    check_contract(CLASS())


def test_it_is_exact_whoever_takes_part():
    problem = ff.problems.ridge(num_clients=8, dim=10, rows=20)
    who = ff.participation.Bernoulli(np.linspace(0.2, 0.9, 8))
    result = ff.simulate(CLASS(), problem, who, rounds=1500, lr=1e-3, local_steps=3)
    assert result.metrics["distance"][-1] < 1e-9


def test_focusfl_finds_it():
    assert ff.ALGORITHMS["NAME"] is ff.CLASS is CLASS
""",
    "participation": """\
from focusfl.conformance import check_contract
from focusfl.participation import PARTICIPATION
from NAME import CLASS


def test_draws_and_marginals_agree():
    check_contract(CLASS(chance=0.3), num_clients=5)


def test_focusfl_finds_it():
    assert PARTICIPATION["NAME"] is CLASS
""",
    "problem": """\
import focusfl as ff
import numpy as np
from focusfl.conformance import check_contract
from NAME import CLASS


def test_it_keeps_the_contract():
    check_contract(CLASS())


def test_the_gradient_vanishes_at_the_optimum():
    problem = CLASS()
    metrics = problem.objective.evaluate(problem.optimum, problem.eval_data)
    assert metrics["distance"] == 0 and metrics["grad_norm"] < 1e-12


def test_focus_finds_the_optimum():
    result = ff.simulate(
        ff.Focus(), CLASS(), ff.participation.Uniform(3), rounds=300, lr=0.03, local_steps=2
    )
    assert result.metrics["distance"][-1] < 1e-9
    assert np.isfinite(result.x).all()


def test_focusfl_finds_it():
    assert ff.problems.PROBLEMS["NAME"] is CLASS
""",
}

"""Rules that an implementation may be found to follow: published ones and slips.

The library's algorithms are driven through the contract. The slips are of SCAFFOLD and
FOCUS and live here, in plain numpy: none is an algorithm that anybody should run.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from focusfl.algorithms import ALGORITHMS, MIFA, FedAvg, FedVARP, Focus, Scaffold
from focusfl.conformance.problem import Problem, Row, schedule, standard
from focusfl.core import Algorithm, Round
from focusfl.simulation.reference import play_round

Make = Callable[[Problem], Any]

COMPARED = 24  # rounds, of which every one must agree
STILL = 1e-12  # a model that has moved less has not moved
ADVANCES = "memory advances though the reply was lost"
# Wrappers of others, and a method whose round is one iteration of everybody.
APART = {"client_opt", "compressed", "server_opt", "proxskip"}
NAMES = {"focus": "FOCUS", "scaffold": "SCAFFOLD II"}


class State(NamedTuple):
    """An algorithm's state, and the number of the round to come."""

    server: Any
    clients: list[Any]
    number: int


@dataclass(frozen=True)
class Driven:
    """An algorithm of the contract, as `check` drives any implementation."""

    algorithm: Algorithm
    problem: Problem
    advances: bool  # a client's memory does, though its reply was lost
    own_steps: bool  # clients may take different numbers of local steps

    def start(self) -> State:
        """Begin at x0; with a warm start where the algorithm has one."""
        server, client = self.algorithm.init(self.problem.x0)
        many = self.problem.num_clients
        state = State(server, [client] * many, 0)
        if not self.algorithm.starts_warm:
            return state
        warm = replace(self.problem, steps=(1,) * many, local_steps=1, lr=0.0)
        return replace(self, problem=warm).round(state._replace(number=-1), [*range(many)], [])

    def round(self, state: State, participants: list[int], lost: list[int]) -> State:
        """Carry out one round of the reference engine, with replies that are lost."""
        problem, arrived = self.problem, len(participants) - len(lost)
        rd = Round(state.number, problem.lr, problem.local_steps, problem.num_clients, arrived)
        gradients = [lambda x, _, i=i: problem.gradient(i, x) for i in range(problem.num_clients)]
        server, clients = play_round(
            self.algorithm, state.server, state.clients, participants, rd, gradients,
            lambda _, steps: range(steps), local_steps=problem.steps, lost=lost,
            keeps_lost=self.advances,
        )  # fmt: skip
        return State(server, clients, state.number + 1)

    def model(self, state: State) -> np.ndarray:
        """Give the server's model."""
        return state.server.x


def of_algorithm(
    algorithm: Algorithm, advances: bool = False, own_steps: bool | None = None
) -> Make:
    """Make an implementation to check of an algorithm of the contract.

    Args:
        algorithm: such as Focus().
        advances: let a client's memory advance although its reply was lost.
        own_steps: let clients take different numbers of local steps; right if the
            server's side does not ask for `local_steps`. None: of FOCUS, SCAFFOLD I,
            MIFA, FedVARP and FedAvg it is known that it does not.
    """
    if own_steps is None:
        own_steps = isinstance(algorithm, FedAvg | FedVARP | Focus | MIFA) or (
            isinstance(algorithm, Scaffold) and algorithm.option == 1
        )
    return lambda problem: Driven(algorithm, problem, advances, own_steps)


@dataclass(frozen=True)
class Slipped:
    """SCAFFOLD as published, or with one slip; to be driven by `check`."""

    problem: Problem
    option: int = 2
    sign: int = 1  # of the correction c - c_i
    divided: bool = True  # the movement by the number of local steps, for c_i
    begins_as_model: str = ""  # not as 0: "c_i"; or "all", c_i when first seen
    written_back: bool = True  # c_i
    advances: bool = False  # c_i, though the reply was lost
    c_over: str = "N"  # what the sum of the changes of c_i is divided by: N or S
    x_over: str = "S"  # the same for the sum of the movements; or asked, replied or not
    last_only: str = ""  # of c, x or xc: its mean or sum is the last reply alone
    own_steps: bool = field(default=True, init=False)

    def start(self) -> tuple[np.ndarray, ...]:
        """x, c and all c_i."""
        x, many = self.problem.x0, self.problem.num_clients
        c, c_i = {"": (0, 0), "c_i": (0, 1), "all": (1, np.nan)}[self.begins_as_model]
        return x, c * x, np.tile(c_i * x, (many, 1))

    def round(self, state, participants, lost) -> tuple[np.ndarray, ...]:
        """One round."""
        x, c, c_i = state[0], state[1], state[2].copy()
        dx, dc, lr = [], [], self.problem.lr
        for i in participants:
            c_i[i] = np.where(np.isnan(c_i[i]), x, c_i[i])  # not seen before
            z, drift, steps = x, self.sign * (c - c_i[i]), self.problem.steps[i]
            for _ in range(steps):
                z = z - lr * (self.problem.gradient(i, z) + drift)
            new = c_i[i] - c + (x - z) / (lr * (steps if self.divided else 1))
            if self.option == 1:
                new = self.problem.gradient(i, x)
            if i not in lost:
                dx.append(z - x)
                dc.append(new - c_i[i])
            if self.written_back and (self.advances or i not in lost):
                c_i[i] = new
        many = self.problem.num_clients
        over = {"N": many, "S": len(dx), "asked": len(participants)}
        moved = dx[-1] if "x" in self.last_only else sum(dx) / over[self.x_over]
        c = c + sum(dc[-1:] if "c" in self.last_only else dc) / over[self.c_over]
        return x + moved, c, c_i

    def model(self, state) -> np.ndarray:
        """x"""
        return state[0]


@dataclass(frozen=True)
class SlippedFocus:
    """FOCUS as published, or with one slip."""

    problem: Problem
    mean: bool = False  # of the pushes, where they should be summed
    whole: bool = False  # gradients are pushed, not what is new in them
    kept: bool = True  # the last gradient
    own_steps: bool = field(default=True, init=False)

    def start(self) -> tuple[np.ndarray, ...]:
        """x, y and the stored gradients."""
        x = self.problem.x0
        return x, 0 * x, np.zeros((self.problem.num_clients, len(x)))

    def round(self, state, participants, lost) -> tuple[np.ndarray, ...]:
        """One round."""
        x, y, stored = state[0], state[1], state[2].copy()
        pushed = []
        for i in participants:
            z, u = x, 0 * x
            for _ in range(self.problem.steps[i]):
                z = z - self.problem.lr * u
                grad = self.problem.gradient(i, z)
                u = grad - stored[i]
            if i not in lost:
                pushed.append(grad if self.whole else u)
                stored[i] = self.kept * grad
        y = y + sum(pushed) / (len(pushed) if self.mean else 1)
        return x - self.problem.lr * y, y, stored

    def model(self, state) -> np.ndarray:
        """x"""
        return state[0]


OF_SCAFFOLD: dict[str, dict[str, Any]] = {
    "correction of the wrong sign": {"sign": -1},
    "c moves by the mean of S, without |S|/N": {"c_over": "S"},
    "x moves by the sum over N, not the mean of S": {"x_over": "N"},
    "c_i begins as the model": {"begins_as_model": "c_i"},
    "c begins as the model, c_i as that when first seen": {"begins_as_model": "all"},
    "c_i is never written back": {"written_back": False},
    "the last client overwrites the sum of c": {"last_only": "c"},
    "the last client overwrites all sums": {"last_only": "xc"},
    "the last client overwrites all sums, c_i is never written back": {
        "last_only": "xc",
        "written_back": False,
    },
    "c_i is not divided by the local steps": {"divided": False},
}
SLIPS: dict[str, Callable[..., Any]] = {
    f"SCAFFOLD {roman}, {slip}": partial(Slipped, option=option, **slip_options)
    for option, roman in ((2, "II"), (1, "I"))
    for slip, slip_options in OF_SCAFFOLD.items()
    if option == 2 or "divided" not in slip_options  # which option I does not do
}
SLIPS |= {
    "FOCUS, mean of the pushes instead of their sum": partial(SlippedFocus, mean=True),
    "FOCUS, gradients pushed instead of their change": partial(SlippedFocus, whole=True),
    "FOCUS, gradient never kept": partial(SlippedFocus, kept=False),
}


class Rule(NamedTuple):
    """A way to go from round to round, by name."""

    name: str
    make: Make
    of: str = ""  # the rule it is where no reply is lost


def library() -> dict[str, Any]:
    """The library's algorithms at their defaults, by the names of their papers."""
    algorithms = {
        NAMES.get(name, kind.__name__): kind()
        for name, kind in ALGORITHMS.items()
        if name not in APART
        and all(
            one.default is not MISSING or one.default_factory is not MISSING for one in fields(kind)
        )
    }
    return algorithms | {
        "SCAFFOLD I": Scaffold(option=1),
        "FOCUS": Focus(memory="last"),
        "FOCUS, warm start": Focus(warm_start=True, memory="last"),
        "FOCUS, mean memory": Focus(),
    }


@lru_cache
def rules() -> tuple[Rule, ...]:
    """All rules that are known, published ones first."""
    published, late = [], []
    for name, algorithm in library().items():
        make: Make = of_algorithm(algorithm)
        if name == "SCAFFOLD II":
            make = Slipped  # the same, and its server knows of unequal steps
        published.append(Rule(name, make))
        forgets = of_algorithm(algorithm, advances=True)
        late.append(Rule(f"{name}, {ADVANCES}", forgets, of=name))
    asked = partial(Slipped, advances=True, x_over="asked")
    named = f"SCAFFOLD II, {ADVANCES}, x is divided by all that were asked"
    late.append(Rule(named, asked, of="SCAFFOLD II"))
    slipped = [Rule(name, make) for name, make in SLIPS.items()]
    slipped += [
        Rule(f"{name}, and {ADVANCES}", partial(make, advances=True), of=name)
        for name, make in SLIPS.items()
        if name.startswith("SCAFFOLD")
    ]
    return (*published, *late, *slipped)


@cache
def paths(row: Row) -> dict[str, np.ndarray]:
    """The models of every rule in the first rounds of a row.

    Without those that cannot do it, or are there another rule."""
    problem = standard().unequal() if row.unequal else standard()
    models_of: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for rule in rules():
            driven = rule.make(problem)
            if rule.of and not row.loses or row.unequal and not driven.own_steps:
                continue
            state, models = driven.start(), []
            for participants, lost in islice(schedule(row), COMPARED):
                state = driven.round(state, participants, lost)
                models.append(driven.model(state))
            models_of[rule.name] = np.array(models)
    return models_of


def distances(row: Row, models: np.ndarray) -> dict[str, np.ndarray]:
    """How far models are from each rule's, round by round, as a share of how far they
    all have come."""
    x0, size = standard().x0, len(models)
    shares = {}
    for name, path in paths(row).items():
        path = path[:size]
        moved = np.maximum.accumulate(np.linalg.norm(path - x0, axis=1))
        apart = np.linalg.norm(models[: len(path)] - path, axis=1)
        shares[name] = apart / np.maximum(moved, STILL)  # a buffer may not be full yet
    return shares

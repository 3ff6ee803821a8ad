"""The methods of FLamby's tables as algorithms of this library, at published steps."""

from collections.abc import Callable, Sequence

import numpy as np
from flamby.federations import UPDATES, Federation, Part
from flamby.problem import Model, TableOfBatches, Together, alone
from flamby.published import Row, tests
from hospitals.serve import concordance

from focusfl.algorithms import FedAvg, FedProx, Scaffold, ServerOpt
from focusfl.core import Algorithm
from focusfl.core.validation import unknown
from focusfl.participation import Full
from focusfl.simulation.reference import loop
from focusfl.simulation.spec import Options

BETAS = (0.9, 0.999)
TAU = 1e-8
ALONE = ("Pooled Training", "Local")
Values = dict[str, float]  # by test set


def _adaptive(optimizer: str) -> Callable[[Row], Algorithm]:
    def made(row: Row) -> Algorithm:
        return ServerOpt(FedAvg(), optimizer, row.server_lr or 1.0, *BETAS, TAU, initial=0.0)

    return made


STRATEGIES: dict[str, Callable[[Row], Algorithm]] = {
    "FedAvg": lambda row: FedAvg(),
    "FedProx": lambda row: FedProx(row.mu or 0.0),
    # Theirs keeps one vector a client, its correction, and works out the server's mean
    # from the model that comes back. With everybody there that is option II.
    "Scaffold": lambda row: Scaffold(server_lr=row.server_lr or 1.0),
    "FedAdam": _adaptive("adam"),
    "FedYogi": _adaptive("yogi"),
    "FedAdagrad": _adaptive("adagrad"),
}


def models(federation: Federation, rows: Sequence[Row], seed: int) -> dict[str, Model]:
    """Train every method of a table anew: its model by its name."""
    known = [*STRATEGIES, "Cyclic", *ALONE]
    found, together = {}, Together(federation, seed)
    for row in sorted(rows, key=lambda row: row.method):
        # In the order of names, as there: batches may depend on what was run before.
        if row.method in STRATEGIES:
            visits = [range(len(federation.train))] * federation.rounds
            problem = together.next(visits)
            algorithm = STRATEGIES[row.method](row)
            found[row.method] = _run(algorithm, problem, federation.rounds, row.lr)
        elif row.method == "Cyclic":
            found[row.method] = _cyclic(federation, together, row, seed)
        elif row.method.startswith(ALONE):
            part = _part(federation, row.method)
            found[row.method] = _adam(alone(federation, part, seed), row.lr)
        else:
            raise ValueError(unknown("method", row.method, known))
    return found


def judged(federation: Federation, x: Model) -> Values:
    """What a model means to every hospital's patients held out, and to all of them."""
    parts = [*federation.test, federation.pooled[1]]
    return {
        name: measure(federation, part, x)
        for name, part in zip(tests(federation), parts, strict=True)
    }


def measure(federation: Federation, part: Part, x: Model) -> float:
    """Accuracy; of survival Harrell's C as lifelines has it: one who died is worse off
    than one last seen alive on the same day."""
    scores, hit = part.x @ x, part.event > 0
    if not federation.survival:
        return float(((scores > 0) == hit).mean())
    before = part.time[:, None] < part.time
    same = part.time[:, None] == part.time
    return concordance(scores, hit[:, None] & (before | (same & ~hit)))


def turns(num_clients: int, rounds: int, seed: int) -> list[int]:
    """Who is visited by the cyclic method, round by round: orders drawn anew."""
    rng = np.random.default_rng(seed)
    drawn: list[int] = []
    while len(drawn) < rounds:
        drawn += rng.permutation(num_clients).tolist()
    return drawn[:rounds]


def _cyclic(federation: Federation, together: Together, row: Row, seed: int) -> Model:
    """The published method: nobody hands its model on, and the first hospital's own,
    trained in its own turns, is what is judged."""
    ids = turns(len(federation.train), federation.rounds, seed)
    problem = together.next([[i] for i in ids])
    if 0 not in ids:
        return problem.x0
    first = TableOfBatches(problem.parts[:1], problem.batches[:1], problem.start, problem.survival)
    return _run(FedAvg(), first, ids.count(0), row.lr)


def _part(federation: Federation, method: str) -> Part:
    """Whose patients a method trains on that knows no others."""
    if method == ALONE[0]:
        return federation.pooled[0]
    number = method.split()[-1]
    if not number.isdecimal() or int(number) >= len(federation.train):
        raise ValueError(
            f"a method must be Local 0 to Local {len(federation.train) - 1}; got {method!r}."
        )
    return federation.train[int(number)]


def _adam(problem: TableOfBatches, lr: float) -> Model:
    """Adam in one place: a server's optimizer over a client that takes single steps."""
    adam = ServerOpt(FedAvg(), "adam", lr, *BETAS, TAU, initial=0.0, bias_correction=True)
    return _run(adam, problem, len(problem.batches[0]), 1.0, local_steps=1)


def _run(
    algorithm: Algorithm,
    problem: TableOfBatches,
    rounds: int,
    lr: float,
    local_steps: int = UPDATES,
) -> Model:
    done = loop(
        algorithm, problem, Full(), rounds=rounds, lr=lr, local_steps=local_steps,
        eval_every=rounds, options=Options(on_divergence="raise"),
    )  # fmt: skip
    return done.x

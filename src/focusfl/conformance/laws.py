"""Check that a part keeps the contract that every engine relies on.

For tests of your own algorithm, participation model or problem: `focusfl new` writes one that
calls `check_contract`. Whether an algorithm is exact is another question, which `check` answers.
"""

import copy
import pickle
from typing import Any

import numpy as np

from focusfl.core import Algorithm, CannotForget, Round, tree
from focusfl.participation import Participation, Replay, masks
from focusfl.problems import Problem, Quadratic
from focusfl.simulation.api import simulate
from focusfl.simulation.client_round import client_round
from focusfl.simulation.reference import loop

CLIENTS, DIM, STEPS, LR = 4, 3, 2, 0.05
ROUNDING = 1e-9  # relative; float64 has 1e-16, and a curve of 30 rounds multiplies it


class ContractBroken(AssertionError):
    """A part does something that engines do not expect of it."""


def check_contract(part: Any, num_clients: int | None = None) -> None:
    """Raise ContractBroken unless a part keeps the contract of its kind.

    Args:
        part: an Algorithm, a Participation or a Problem.
        num_clients: how many clients a participation model is drawn for; 8 if None.

    Raises:
        ContractBroken: If a law does not hold; the message says which, and what was seen.
        ValueError: If it is none of the three.
    """
    if isinstance(part, Algorithm):
        _check_algorithm(part)
    elif isinstance(part, Participation):
        _check_participation(part, num_clients or 8)
    elif isinstance(part, Problem):
        _check_problem(part)
    else:
        raise ValueError(
            f"part must be an Algorithm, a Participation or a Problem; got {type(part).__name__}."
        )


def _require(holds: Any, law: str) -> None:
    if not holds:
        raise ContractBroken(law)


def _gap(a: Any, b: Any) -> float:
    """The largest difference between two trees, beside the largest number in them."""
    a, b = (tree.map(lambda leaf: np.asarray(leaf, float), part) for part in (a, b))
    gaps = tree.map(lambda a, b: np.abs(a - b).max(initial=0), a, b)
    sizes = tree.map(lambda a: np.abs(a).max(initial=0), a)
    return float(max(tree.leaves(gaps), default=0.0) / max([1.0, *tree.leaves(sizes)]))


def _read_only(a: Any) -> Any:
    """Copy a tree to arrays that cannot be written to; plain numbers stay."""

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, int | float):
            return leaf
        leaf = np.array(leaf)
        leaf.flags.writeable = False
        return leaf

    return tree.map(copied, a)


def _quadratic() -> Quadratic:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((CLIENTS, DIM, DIM))
    return Quadratic(
        A @ A.swapaxes(1, 2) / DIM + 0.5 * np.eye(DIM), rng.standard_normal((CLIENTS, DIM))
    )


def _check_algorithm(algorithm: Algorithm) -> None:
    same = copy.deepcopy(algorithm)
    _require(
        same == algorithm and hash(same) == hash(algorithm),
        "an algorithm equals its copy and has its hash; make it a frozen dataclass",
    )
    _require(
        pickle.loads(pickle.dumps(algorithm)) == algorithm, "an algorithm equals its pickled copy"
    )
    _check_round(algorithm)
    problem, rng = _quadratic(), np.random.default_rng(1)
    present = rng.random((30, CLIENTS)) < 0.6
    present[[0, 9]] = False  # nobody
    how: dict[str, Any] = {"rounds": 30, "lr": LR, "local_steps": STEPS}

    def run(engine: Any, problem: Problem, present: np.ndarray) -> Any:
        return engine(algorithm, problem, Replay(present), **how)

    reference = run(loop, problem, present)
    compiled = run(simulate, problem, present)
    _require(
        _gap(reference.x, compiled.x) < ROUNDING,
        "loop and simulate give the same model; use operators and focusfl.core.tree alone, "
        "and no branch on an array",
    )
    error = reference.metrics["distance"]
    _require(
        error[1] == error[0] and error[10] == error[9],
        "a round with nobody leaves the model as it is",
    )
    order = rng.permutation(CLIENTS)
    shuffled = Quadratic(problem.H[order], problem.h[order])
    _require(
        _gap(run(loop, shuffled, present[:, order]).x, reference.x) < ROUNDING,
        "the model does not depend on the order of clients: `update` gets no more than a sum",
    )
    if not algorithm.elementwise:
        _check_rotation(algorithm)


def _check_round(algorithm: Algorithm) -> None:
    """Drive one client through two rounds by hand, on inputs that cannot be written to."""
    rd = Round(index=0, lr=LR, local_steps=STEPS, num_clients=1, num_active=1)
    H, h = _quadratic().H[0], _quadratic().h[0]

    def gradient(x: Any, batch: Any) -> Any:
        del batch
        return H @ x - h

    server, client = algorithm.init(_read_only(np.linspace(-1, 1, DIM)))
    derived = client
    for index in range(2):
        round_rd = rd._replace(index=index)
        server, client = _read_only(server), _read_only(client)
        down = _read_only(algorithm.broadcast(server))
        try:
            new, up = client_round(algorithm, client, down, gradient, [None] * STEPS, round_rd)
            updated = algorithm.update(server, _read_only(up), round_rd)
            answer = _read_only(algorithm.broadcast(updated))
            settled = algorithm.after_update(_read_only(new), answer, round_rd)
        except ValueError as error:
            if "read-only" in str(error):
                raise ContractBroken("no method writes to what it is given") from error
            raise
        _require(type(down) is dict and type(up) is dict, "messages are dicts")
        for name, state in {"server": updated, "client": settled}.items():
            _require(
                isinstance(state, tuple) and hasattr(state, "_fields"),
                f"the state of the {name} is a NamedTuple; got {type(state).__name__}",
            )
        _require("x" in updated._fields, "the server's state has a field x, the model")
        _require(
            algorithm.has_after_update or _gap(settled, new) == 0,
            "after_update changes nothing unless has_after_update",
        )
        if algorithm.sends_state:
            derived = settled
        else:
            derived = algorithm.state_after(derived, up, down, round_rd)
            derived = algorithm.after_update(derived, answer, round_rd)
        server, client = updated, settled
    _check_tracking(algorithm, server, derived)


def _check_tracking(algorithm: Algorithm, server: Any, client: Any) -> None:
    try:
        recomputed = algorithm.recompute(server, [(1, client)])
    except CannotForget:
        return
    _require(
        _gap(server, recomputed) < ROUNDING,
        "what `tracked` says of the clients' states adds up to the server's fields",
    )


def _check_rotation(algorithm: Algorithm) -> None:
    """Run in turned coordinates: trees are combined linearly, by factors that are the same."""
    problem = _quadratic()
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((DIM, DIM)))[0]
    turned = Quadratic(turn @ problem.H @ turn.T, problem.h @ turn.T)
    everybody = np.ones((10, CLIENTS), bool)
    how: dict[str, Any] = {"rounds": 10, "lr": LR, "local_steps": STEPS}
    clients = [
        tree.map(lambda a: np.asarray(a, float), loop(algorithm, p, Replay(everybody), **how).x)
        for p in (problem, turned)
    ]
    _require(
        _gap(turn @ clients[0], clients[1]) < ROUNDING or _elementwise_server(algorithm),
        "in turned coordinates a run is the same; an algorithm that works entry by entry on "
        "clients must say elementwise = True",
    )


def _elementwise_server(algorithm: Algorithm) -> bool:
    """Whether the server alone works entry by entry: engines turn clients, not the server."""
    problem = _quadratic()
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((DIM, DIM)))[0]
    rd = Round(index=0, lr=LR, local_steps=STEPS, num_clients=1, num_active=1)
    server, client = algorithm.init(np.linspace(-1, 1, DIM))
    down = algorithm.broadcast(server)

    def turned(a: Any) -> Any:
        return tree.map(lambda leaf: turn @ leaf if np.shape(leaf) == (DIM,) else leaf, a)

    def gradient(x: Any, batch: Any) -> Any:
        return problem.H[0] @ x - problem.h[0]

    def of_turned(x: Any, batch: Any) -> Any:
        return turn @ gradient(turn.T @ x, batch)

    steps = [None] * STEPS
    plain = client_round(algorithm, client, down, gradient, steps, rd)
    other = client_round(algorithm, turned(client), turned(down), of_turned, steps, rd)
    return all(_gap(turned(a), b) < ROUNDING for a, b in zip(plain, other, strict=True))


def _check_participation(model: Participation, num_clients: int) -> None:
    rounds = 4_000
    present = masks(model, num_clients, rounds, seed=0)  # which checks what is drawn
    for shorter in (1, 65):
        _require(
            np.array_equal(masks(model, num_clients, shorter, seed=0), present[:shorter]),
            "a longer schedule begins like a shorter one: what a round draws does not depend on "
            "how many rounds follow",
        )
    marginals = model.marginals(num_clients)
    shares = present / np.maximum(present.sum(1, keepdims=True), 1)
    for name, drawn, stated, stated_error in (
        ("p", present, marginals.p, marginals.p_error),
        ("q", shares, marginals.q, marginals.q_error),
    ):
        # Rounds may depend on each other: means over blocks of 200 give the error.
        blocks = drawn.reshape(-1, 200, num_clients).mean(1)
        error = np.hypot(blocks.std(0) / len(blocks) ** 0.5, stated_error) + 1 / rounds
        far = np.abs(drawn.mean(0) - stated) / error
        _require(
            np.shape(stated) == (num_clients,) and far.max() < 6,
            f"marginals state the {name} of what is drawn; client {int(far.argmax())} has "
            f"{drawn.mean(0)[far.argmax()]:.3g} in {rounds:,} rounds, not "
            f"{np.broadcast_to(stated, num_clients)[far.argmax()]:.3g}",
        )


def _check_problem(problem: Problem) -> None:
    from focusfl.algorithms import Focus

    for leaf in tree.leaves(problem.data):
        _require(
            np.shape(leaf)[:1] == (problem.num_clients,),
            f"every leaf of data has a row for each client; got shape {np.shape(leaf)} for "
            f"{problem.num_clients} clients",
        )
    objective = problem.objective
    _require(
        copy.deepcopy(objective) == objective and hash(copy.deepcopy(objective)) == hash(objective),
        "an objective equals its copy and has its hash; make it a frozen dataclass",
    )
    metrics = objective.evaluate(problem.x0, problem.eval_data)
    for name, value in metrics.items():
        _require(np.shape(value) == (), f"metric {name} is one number; got {np.shape(value)}")
    x0 = np.asarray(problem.x0) if not isinstance(problem.x0, dict | tuple) else None
    if "loss" in metrics and not objective.stochastic and x0 is not None and x0.ndim == 1:
        _check_gradient(problem, x0)
    present = np.random.default_rng(0).random((10, problem.num_clients)) < 0.5
    how: dict[str, Any] = {"rounds": 10, "lr": 1e-3, "local_steps": 2}
    runs = [engine(Focus(), problem, Replay(present), **how) for engine in (loop, simulate)]
    rounding = ROUNDING if problem.dtype == "float64" else 1e-3
    _require(_gap(runs[0].x, runs[1].x) < rounding, "loop and simulate give the same model")


def _check_gradient(problem: Problem, x0: np.ndarray) -> None:
    """F is the weighted mean of the f_i: their gradients are the slope of the loss."""
    objective, rng = problem.objective, np.random.default_rng(0)
    x, way = x0 + 0.1 * rng.standard_normal(x0.shape), rng.standard_normal(x0.shape)
    weights = np.ones(problem.num_clients) if problem.weights is None else problem.weights
    rows = [tree.map(lambda leaf, i=i: leaf[i], problem.data) for i in range(problem.num_clients)]
    gradients = np.array([objective.grad(x, row, None) for row in rows])
    slope = (np.asarray(weights) @ gradients) @ way / problem.total_weight
    small = 1e-5
    up, down = (
        float(objective.evaluate(x + sign * small * way, problem.eval_data)["loss"])
        for sign in (1, -1)
    )
    measured = (up - down) / (2 * small)
    tolerance = 1e-4 * (1 + abs(slope)) if problem.dtype == "float64" else np.inf
    _require(
        abs(measured - slope) < tolerance,
        f"the mean of the clients' gradients is that of the loss; along one direction they are "
        f"{slope:.6g} and {measured:.6g}",
    )

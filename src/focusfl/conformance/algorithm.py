"""An algorithm of the contract, driven as any implementation is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from focusfl.algorithms import MIFA, FedAvg, FedVARP, Focus, Scaffold
from focusfl.conformance.problem import Problem
from focusfl.core import Algorithm, Round, tree
from focusfl.simulation.client_round import client_round

Make = Callable[[Problem], Any]


class State(NamedTuple):
    server: Any
    clients: tuple[Any, ...]
    number: int  # of the round to come


class Driven:
    """What `check` drives: start, round and model, of one algorithm on one problem."""

    def __init__(self, algorithm: Algorithm, problem: Problem, advances: bool, own_steps: bool):
        self.algorithm, self.problem = algorithm, problem
        self.advances, self.own_steps = advances, own_steps

    def start(self) -> State:
        """x0 on the server, memory at its beginning; a warm start where it has one."""
        server, client = self.algorithm.init(self.problem.x0)
        many = self.problem.num_clients
        state = State(server, (client,) * many, 0)
        if not self.algorithm.starts_warm:
            return state
        one = replace(self.problem, steps=(1,) * many, local_steps=1)
        warm = Driven(self.algorithm, one.at(0.0), self.advances, self.own_steps)
        everybody = list(range(many))
        return warm.round(state._replace(number=-1), everybody, [])

    def round(self, state: State, participants: list[int], lost: list[int]) -> State:
        """One round, as the reference engine has it, with replies that are lost."""
        algorithm, problem = self.algorithm, self.problem
        clients, arrived = list(state.clients), len(participants) - len(lost)
        rd = Round(state.number, problem.lr, problem.local_steps, problem.num_clients, arrived)
        down, ups = algorithm.broadcast(state.server), []
        for i in participants:
            own = rd._replace(local_steps=problem.steps[i])
            kept, up = client_round(
                algorithm, clients[i], down, self._gradient(i), range(own.local_steps),
                own,
            )  # fmt: skip
            if i not in lost:
                ups.append(up)
            if self.advances or i not in lost:
                clients[i] = kept
        total = ups[0]
        for up in ups[1:]:
            total = tree.add(total, up)
        server = algorithm.update(state.server, total, rd)
        answer = algorithm.broadcast(server)
        for i in participants:
            if i not in lost:
                clients[i] = algorithm.after_update(clients[i], answer, rd)
        return State(server, tuple(clients), state.number + 1)

    def _gradient(self, client: int) -> Callable:
        return lambda x, _: self.problem.gradient(client, x)

    def model(self, state: State) -> np.ndarray:
        """The server's model."""
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

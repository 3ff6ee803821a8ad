"""What algorithms declare for a deployment is what they do."""

import doctest

import numpy as np
import pytest

import focusfl as ff
from focusfl.algorithms import ALGORITHMS
from focusfl.core import CannotForget, Round, tree
from focusfl.core import algorithm as contract
from focusfl.simulation.client_round import client_round

N, STEPS, LR, WEIGHTS = 3, 2, 0.1, (1.0, 2.0, 0.5)
SLOPES = np.array([[1.0, 0.8], [1.2, 1.0], [0.9, 1.1]])
OFFSETS = np.array([[1.0, 2.0], [-1.0, 0.5], [0.5, -3.0]])

PLAIN = [kind() for name, kind in ALGORITHMS.items() if name != "stale"] + [
    ff.Focus(memory="last"), ff.Focus(warm_start=True), ff.Scaffold(option=1),
    ff.TScaffold(option=2), ff.TScaffold(option="1-up"), ff.TFocus(0.5),
    ff.ProxSkip(period=2),
]  # fmt: skip
EVERY = [
    *PLAIN,
    *(ff.ServerOpt(one, "adam") for one in (ff.Focus(), ff.FedLT(), ff.Scaffnew())),
    *(ff.ClientOpt(one, prox=0.1) for one in (ff.Scaffold(), ff.FedADMM())),
    *(
        ff.Compressed(one, compressor)
        for one in (ff.Focus(), ff.Scaffold(option=1), ff.FedDyn(), ff.FedADMM())
        for compressor in (ff.Quantize(), ff.TopK(0.5))
    ),
    ff.ServerOpt(ff.Compressed(ff.MIFA(), ff.Quantize())),
    ff.Stale(ff.Focus()), ff.Stale(ff.MIFA()),
]  # fmt: skip


class Loop:
    """A server and three clients, whose replies may count late."""

    def __init__(self, algorithm):
        self.algorithm, self.index = algorithm, 0
        self.server, client = algorithm.init(np.array([-1.0, 1.0]))
        self.clients, self.derived = [client] * N, [client] * N

    @property
    def rd(self):
        return Round(self.index, LR, STEPS, sum(WEIGHTS), float("nan"))

    def reply(self, i):
        """A push of client i and all that is known of it, computed now."""
        down = self.algorithm.broadcast(self.server)
        new, up = client_round(
            self.algorithm, self.clients[i], down,
            lambda x, batch: SLOPES[i] * x - OFFSETS[i], [None] * STEPS, self.rd,
        )  # fmt: skip
        return i, new, up, down, self.rd

    def close(self, *replies):
        """Count these, and derive states from pushes alone."""
        algorithm = self.algorithm
        ups = [tree.scale(WEIGHTS[i], up) for i, _, up, _, _ in replies]
        active = sum(WEIGHTS[i] for i, *_ in replies)
        rd = self.rd._replace(num_active=active)
        total = ups[0]
        for up in ups[1:]:
            total = tree.add(total, up)
        self.server = algorithm.update(self.server, total, rd)
        answer = algorithm.broadcast(self.server)
        for i, new, up, down, asked in replies:
            derived = new
            if not algorithm.sends_state:
                derived = algorithm.state_after(self.derived[i], up, down, asked)
            self.clients[i] = algorithm.after_update(new, answer, rd)
            self.derived[i] = algorithm.after_update(derived, answer, rd)
        self.index += 1

    def play(self, *rounds):
        for ids in rounds:
            self.close(*map(self.reply, ids))

    def gap(self):
        """How far what the server tracks is from the sum of the derived states."""
        pairs = zip(WEIGHTS, self.derived, strict=True)
        return gap(self.server, self.algorithm.recompute(self.server, pairs))


def gap(a, b):
    parts = [0.0]
    tree.map(lambda a, b: parts.append(float(np.max(np.abs(a - b), initial=0))), a, b)
    return max(parts)


def forgets(algorithm):
    loop = Loop(algorithm)
    try:
        loop.gap()
    except CannotForget:
        return False
    return True


ROUNDS = [(0, 1), (1, 2), (0,), (2, 0, 1), (1,), (0, 2)]


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_states_derived_from_pushes_are_those_of_the_clients(algorithm):
    loop = Loop(algorithm)
    loop.play(*ROUNDS)
    if "Compressed" in repr(algorithm) and not algorithm.sends_state:
        # What was not sent is the client's alone; what was sent is what is tracked.
        assert forgets(algorithm) and loop.gap() < 1e-12
        return
    assert max(map(gap, loop.clients, loop.derived)) < 1e-12


@pytest.mark.parametrize("algorithm", [one for one in EVERY if forgets(one)], ids=repr)
def test_the_server_tracks_the_states(algorithm):
    loop = Loop(algorithm)
    for ids in ROUNDS:
        loop.play(ids)
        assert loop.gap() < 1e-12


@pytest.mark.parametrize("algorithm", [one for one in EVERY if forgets(one)], ids=repr)
def test_a_stale_push_keeps_the_sum_exactly_if_that_is_declared(algorithm):
    """Where it is not, it breaks the sum: the declaration is not overcautious."""
    loop = Loop(algorithm)
    loop.play(*ROUNDS)
    late = loop.reply(1)
    loop.play((0, 2), (0,), (2, 0), (0, 2))
    loop.close(late, loop.reply(0))
    assert (loop.gap() < 1e-12) == algorithm.accepts_stale_model


@pytest.mark.parametrize("algorithm", [one for one in EVERY if forgets(one)], ids=repr)
def test_who_leaves_takes_its_state_along(algorithm):
    loop = Loop(algorithm)
    loop.play(*ROUNDS)
    state, weight = loop.derived[1], WEIGHTS[1]
    server = algorithm.forget(loop.server, state, weight, sum(WEIGHTS))
    rest = [(WEIGHTS[i], loop.derived[i]) for i in (0, 2)]
    assert gap(server, algorithm.recompute(server, rest)) < 1e-12
    # A negative weight lets it come back.
    back = algorithm.forget(server, state, -weight, sum(WEIGHTS) - weight)
    assert gap(back, loop.server) < 1e-12


def test_which_algorithms_cannot_forget():
    """Of those that declare what is tracked; one that does not is taken to forget nobody."""
    declared = [one for one in PLAIN if type(one).tracked is not ff.core.Algorithm.tracked]
    cannot = {type(one).__name__ for one in declared if not forgets(one)}
    assert cannot == {"Scaffnew", "TAMUNA", "ProxSkip"}
    with pytest.raises(CannotForget, match="sum to 0 over all clients"):
        Loop(ff.Scaffnew()).gap()


def test_an_algorithm_that_declares_nothing_is_taken_to_need_everything():
    class Bare(ff.FedAvg):
        accepts_stale_model = ff.core.Algorithm.accepts_stale_model
        sends_state = ff.core.Algorithm.sends_state
        tracked = ff.core.Algorithm.tracked

    bare = Bare()
    assert bare.sends_state and not bare.accepts_stale_model and not bare.has_after_update
    with pytest.raises(CannotForget, match="does not say what its server holds"):
        Loop(bare).gap()


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_settling_changes_states_if_that_is_declared(algorithm):
    loop = Loop(algorithm)
    loop.play(*ROUNDS)
    _, state, *_ = loop.reply(1)
    down = tree.map(lambda a: a + 1, algorithm.broadcast(loop.server))
    rounds = (loop.rd._replace(index=index, num_active=2) for index in range(20))
    changes = [gap(algorithm.after_update(state, down, rd), state) for rd in rounds]
    assert any(changes) == algorithm.has_after_update


def test_the_example_of_the_contract_runs_as_it_is_written():
    found = doctest.testmod(contract)
    assert found.attempted >= 6 and found.failed == 0

"""Late replies on the wire: any order of arrivals, as the simulator plays it."""

import numpy as np
import pytest
from test_exactness import LR, NAMES, PROBLEM, N, error, grad

import focusfl as ff
from focusfl.engines.protocol import ProtocolServer, Site
from focusfl.participation import Async, Clock, schedule

ARRIVALS, STEP = 480, LR / 4


def arrivals(seed):
    """A law of arrivals with speeds that differ by up to four."""
    rng = np.random.default_rng(seed)
    clock = Clock(compute=4 ** rng.uniform(0, 1, N), jitter=rng.uniform(0.1, 0.5))
    return Async(clock, replies=1 + seed % 2, work=[2, 0, 0])


@pytest.mark.parametrize("memory, seed", [("last", 0), ("mean", 1), ("last", 2)])
def test_focus_is_exact_under_any_order_of_arrivals(folder, as_a_user, seed, memory):
    """A site is asked when it was heard, and heard when the clock says so."""
    law, algorithm = arrivals(seed), ff.Focus(memory=memory)
    rounds = ARRIVALS // law.replies
    how = {"job": "job", "lr": STEP, "local_steps": 2}
    with ProtocolServer(algorithm, np.zeros(5), NAMES, folder, **how) as protocol:
        sites = [Site(algorithm, folder, "job", name) for name in NAMES]

        def ask(i):
            return sites[i].answer(protocol.request(NAMES[i]), grad(i))

        under_way = [ask(i) for i in range(N)]
        for ids in schedule(law, N, rounds, seed=seed):
            for i in ids.tolist():
                assert protocol.receive(NAMES[i], under_way[i]).applied
            protocol.close_round()
            for i in ids.tolist():
                under_way[i] = ask(i)
        x = protocol.x
    assert error(x) < 1e-10
    run = ff.simulate(
        algorithm, PROBLEM, law, rounds=rounds, lr=STEP, local_steps=2, seed=seed,
        every=rounds,
    )  # fmt: skip
    assert np.abs(run.x - x).max() < 1e-10

"""Whatever happens to messages, processes and disks, the ledger are right."""

import pytest
from helpers import ALL, Diary
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_world import POINTS, World, scratch

STATEFUL = [*ALL, Diary()]

EVENTS = {  # and how often each
    "play": (12, lambda world, k: world.play(k % 3)),
    "close": (6, lambda world, k: world.close()),
    "ask": (4, lambda world, k: world.ask_free(k % 3)),
    "ask again": (2, lambda world, k: world.ask(k % 3)),
    "carry": (6, lambda world, k: world.carry(k)),
    "bring": (6, lambda world, k: world.bring(k)),
    "carry and keep": (2, lambda world, k: world.carry(k, remove=False)),
    "bring and keep": (1, lambda world, k: world.bring(k, remove=False)),
    "lose request": (1, lambda world, k: world.lose_request(k)),
    "lose reply": (2, lambda world, k: world.lose_reply(k)),
    "site dies": (2, lambda world, k: world.carry(k, point=k % POINTS)),
    "site wiped": (1, lambda world, k: world.wipe(k % 3)),
    "site rewound": (1, lambda world, k: world.rewind(k % 3)),
    "protocol dies": (1, lambda world, k: world.crash_hub()),
    "protocol dies closing": (2, lambda world, k: world.crash_closing(k % POINTS)),
    "protocol dies opening": (1, lambda world, k: world.crash_opening(k % POINTS)),
    "server backed up": (1, lambda world, k: world.back_up()),
    "server restored": (1, lambda world, k: world.restore()),
    "save": (1, lambda world, k: world.save()),
    "give up": (1, lambda world, k: world.give_up(k % 3)),
    "goodbye": (1, lambda world, k: world.play(k % 3, goodbye=True)),
    "forget": (1, lambda world, k: k % 8 or world.forget(k % 3)),
    "new epoch": (1, lambda world, k: k % 8 or world.new_epoch()),
}
OFTEN = [event for event, (times, _) in EVENTS.items() for _ in range(times)]
happenings = st.lists(
    st.tuples(st.sampled_from(OFTEN), st.integers(0, 23)),
    min_size=15,
    max_size=60,
)
weights = st.sampled_from([None, (0.7, 1000.0, 3.14)])


def live_through(algorithm, copies, weights, events):
    with scratch() as folder:
        world = World(algorithm, folder, copies=copies, weights=weights)
        try:
            world.check()
            for event, k in events:
                EVENTS[event][1](world, k)
                world.check()
        finally:
            world.protocol.close()


def sequences(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("algorithm", STATEFUL, ids=repr)
@sequences(15)
@given(copies=st.booleans(), weights=weights, events=happenings)
def test_the_server_holds_what_was_counted_whatever_happens(
    algorithm, copies, weights, events, as_a_user
):
    live_through(algorithm, copies, weights, events)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", STATEFUL, ids=repr)
@sequences(600)
@given(copies=st.booleans(), weights=weights, events=happenings)
def test_the_server_holds_what_was_counted_at_length(
    algorithm, copies, weights, events, as_a_user
):
    live_through(algorithm, copies, weights, events)

"""Streams of batches: nothing is left out of an epoch, and a step says it all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focusfl import data


@given(
    length=st.integers(1, 60),
    batch=st.integers(1, 70),
    epoch=st.integers(0, 5),
    seed=st.integers(0, 9),
)
@pytest.mark.parametrize("stream", [data.epochs, data.fixed_order])
def test_an_epoch_meets_every_sample_once(stream, length, batch, epoch, seed):
    n = data.per_epoch(length, batch)
    steps = range(epoch * n, (epoch + 1) * n)
    batches = [stream(step, length, batch, seed, 3) for step in steps]
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(length))
    assert all(len(taken) == min(batch, length) for taken in batches[:-1])


def test_the_batches_of_the_paper_are_thirteen_and_the_last_has_26():
    sizes = [len(data.fixed_order(step, 1562, 128)) for step in range(14)]
    assert sizes == [128] * 12 + [26, 128]
    assert data.per_epoch(1562, 128) == 13


def test_epochs_clients_and_seeds_have_orders_of_their_own():
    def order(seed, client, epoch):
        return tuple(data.epochs(epoch, 50, 50, seed, client))

    drawn = {order(s, c, e) for s in range(3) for c in range(3) for e in range(3)}
    assert len(drawn) == 27
    assert order(1, 2, 0) == order(1, 2, 0)


def test_with_replacement_every_sample_is_as_likely():
    taken = [data.with_replacement(step, 5, 100, 0, 1) for step in range(100)]
    assert {len(batch) for batch in taken} == {100}
    found = np.bincount(np.concatenate(taken), minlength=5) / 10_000
    assert np.allclose(found, 0.2, atol=5 * np.sqrt(0.16 / 10_000))  # five deviations
    assert not np.array_equal(taken[0], taken[1])


@pytest.mark.parametrize("stream", data.STREAMS.values(), ids=data.STREAMS)
@pytest.mark.parametrize(
    "numbers, message",
    [
        ((-1, 5, 2), "step must be a whole number of at least 0; got -1"),
        ((0, 0, 2), "length must be a whole number of at least 1; got 0"),
        ((0, 5, 0), "batch must be a whole number of at least 1; got 0"),
    ],
)
def test_impossible_batches_are_refused(stream, numbers, message):
    with pytest.raises(ValueError, match=message):
        stream(*numbers, 0, 0)

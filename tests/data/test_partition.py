"""Splits: everything is dealt out once, and each kind is what it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focusfl import data
from focusfl.participation import rarity

LABELS = np.arange(6000) * 7919 % 10  # 600 of each class, not in order

SPLITS = {
    "iid": lambda y, clients, seed: data.iid(len(y), clients, seed),
    "dirichlet": lambda y, clients, seed: data.dirichlet(y, clients, 50.0, seed),
    "dirichlet_balanced": lambda y, clients, seed: data.dirichlet_balanced(y, clients, 0.1, seed),
    "shards": lambda y, clients, seed: data.shards(y, clients, 2, seed),
    "by_label": lambda y, clients, seed: data.by_label(y, clients),
}
EVEN = [name for name in SPLITS if name != "dirichlet"]
drawn = given(
    labels=st.lists(st.integers(-3, 6), min_size=24, max_size=120).map(np.array),
    clients=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
few = settings(max_examples=40, deadline=None)


@few
@pytest.mark.parametrize("name", EVEN)
@drawn
def test_everything_is_dealt_out_once_and_evenly(name, labels, clients, seed):
    parts = SPLITS[name](labels, clients, seed)
    assert len(parts) == clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all(np.all(np.diff(part) > 0) for part in parts)
    sizes = [len(part) for part in parts]
    # A client holds two shards, each of which may have one sample more.
    assert max(sizes) - min(sizes) <= (2 if name == "shards" else 1)


@few
@drawn
def test_uneven_splits_deal_everything_out_or_say_who_has_none(labels, clients, seed):
    try:
        parts = data.dirichlet(labels, clients, 1.0, seed)
    except ValueError as error:
        assert "every client must have data; got none for" in str(error)
        return
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all(np.all(np.diff(part) > 0) and len(part) for part in parts)


@pytest.mark.parametrize("name", SPLITS)
def test_a_seed_decides_the_split(name):
    def same(a, b):
        pairs = zip(SPLITS[name](LABELS, 8, a), SPLITS[name](LABELS, 8, b), strict=True)
        return all(np.array_equal(*pair) for pair in pairs)

    assert same(3, 3)
    assert same(3, 4) == (name == "by_label")  # it draws nothing


def concentration(parts):
    """The mean share of a client's most frequent class."""
    counts = data.counts(LABELS, parts)
    return np.mean(counts.max(1) / counts.sum(1))


@pytest.mark.parametrize("split", [data.dirichlet, data.dirichlet_balanced])
def test_a_small_alpha_concentrates_and_a_large_one_is_like_iid(split):
    found = [concentration(split(LABELS, 20, alpha, seed=5)) for alpha in (0.5, 5.0, 5e4)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.12  # ten classes


def test_clients_of_the_paper_have_1562_samples_of_few_classes():
    labels = np.repeat(np.arange(10), 5000)
    parts = data.dirichlet_balanced(labels, 32, 0.05, seed=66)
    sizes = np.array([len(part) for part in parts])
    assert sizes.sum() == 50_000 and set(sizes) == {1562, 1563}
    equal = data.dirichlet_balanced(labels, 32, 0.05, seed=66, drop_rest=True)
    assert {len(part) for part in equal} == {1562}
    assert len(np.unique(np.concatenate(equal))) == 32 * 1562
    counts = data.counts(labels, parts)
    assert np.median(np.sort(counts, 1)[:, -3:].sum(1) / sizes) > 0.6


def test_clients_that_drew_nothing_are_filled_too():
    # alpha so small that two clients get everything before it is evened out
    labels = np.repeat([0, 1], [90, 10])
    parts = data.dirichlet_balanced(labels, 4, 1e-3, seed=1)
    assert [len(part) for part in parts] == [25] * 4
    assert data.counts(labels, parts).sum(0).tolist() == [90, 10]


def test_shards_have_few_classes_and_sorted_parts_fewer():
    held = [(data.counts(LABELS, parts) > 0).sum(1) for parts in (
        data.shards(LABELS, 10, 2, seed=0), data.by_label(LABELS, 10)
    )]  # fmt: skip
    assert held[0].max() <= 2 and np.all(held[1] == 1)


def test_natural_groups_are_clients():
    parts = data.natural(np.array(["b", "a", "b", "c"]))
    assert [part.tolist() for part in parts] == [[1], [0, 2], [3]]


def test_counts_are_what_rarity_takes():
    labels = np.array([-1.0, 1.0, 1.0, 1.0])
    counts = data.counts(labels, [np.array([0, 1]), np.array([2, 3])])
    assert counts.tolist() == [[1, 1], [0, 2]]
    assert rarity(counts)[0] > rarity(counts)[1]


def test_stacking_pads_to_the_client_with_the_most():
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5, dtype=np.uint8)
    parts = [np.array([1, 4]), np.array([0, 2, 3])]
    (xs, ys), mask, lengths = data.stack(parts, x, y)
    assert xs.shape == (2, 3, 2) and ys.dtype == np.uint8
    assert ys.tolist() == [[1, 4, 0], [0, 2, 3]]
    assert mask.tolist() == [[True, True, False], [True, True, True]]
    assert lengths.tolist() == [2, 3]
    for i, part in enumerate(parts):
        assert np.array_equal(xs[i][mask[i]], x[part])
    assert not xs[~mask].any()


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: data.iid(3, 5, 0),
            r"each of the 5 clients; got 3: client 3 .* most 3",
        ),
        (lambda: data.iid(3, 0, 0), "num_clients must be a whole number .* got 0"),
        (lambda: data.by_label([[0, 1]], 1), r"per sample; got \[\[0, 1\]\]"),
        (lambda: data.shards(LABELS, 2, 0, 0), "per_client must be a whole number"),
        (lambda: data.shards(LABELS[:9], 5, 2, 0), "each of the 10 shards; got 9"),
        (lambda: data.dirichlet(LABELS, 9, 0, 0), "alpha must be positive; got 0"),
        (
            lambda: data.dirichlet(LABELS, 500, 0.01, 0),
            r"none for \d+, .* of 500\. Use a larger alpha, dirichlet_balanced",
        ),
        (lambda: data.natural([]), r"groups must be a list .* got \[\]"),
        (
            lambda: data.stack([np.arange(3)], np.zeros(3), np.zeros(4)),
            r"equally many each; got \[3, 4\]",
        ),
        (lambda: data.stack([np.arange(3)], np.zeros(2)), "from sample 0 to 2"),
        (lambda: data.stack([np.arange(3)]), r"got \[\] rows"),
        (
            lambda: data.stack([np.arange(3), np.arange(0)], np.zeros(3)),
            r"got \[3, 0\]\. Leave clients without",
        ),
    ],
)
def test_impossible_splits_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_share_of_every_group_is_held_out():
    groups = np.repeat([0, 1, 2], [100, 40, 3])
    held = data.hold_out(groups, 0.25, seed=0)
    assert np.bincount(groups[held]).tolist() == [25, 10, 1]
    assert np.array_equal(held, data.hold_out(groups, 0.25, seed=0))
    assert not np.array_equal(held, data.hold_out(groups, 0.25, seed=1))
    assert not data.hold_out(groups, 0, seed=0).any()
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\); got 1"):
        data.hold_out(groups, 1, seed=0)

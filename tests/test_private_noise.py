"""The noise of deployed sites: discrete, exact, and nothing to be read off its low bits."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

import focusfl as ff
from focusfl.core import Batch, tree
from focusfl.privacy import Private, discrete, noise_for
from focusfl.privacy.clipping import clipped_gradient, contributions, sensitivity
from focusfl.privacy.discrete import discrete_gaussian
from focusfl.privacy.mechanism import grid, private_gradient, sum_in_steps

PATH = Path(__file__).parent.parent / "benchmarks" / "privacy.py"
SPEC = importlib.util.spec_from_file_location("benchmarks_privacy", PATH)
attacks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(attacks)

RARELY = 1e-7  # how often a correct sampler fails one of these tests
RNG = np.random.default_rng(11)
ROWS, DIM, CLIP = 12, 7, 0.5


@pytest.mark.parametrize("bits", [0, 1, 4, 10])
def test_samples_have_the_probabilities_of_the_discrete_gaussian(bits):
    samples, deviation = discrete_gaussian(bits, 300_000), 2**bits
    values = np.arange(-5 * deviation, 5 * deviation + 1)
    law = np.exp(-(values**2) / (2 * deviation**2))
    law /= law.sum()  # beyond lies less than one sample
    counts = np.bincount(np.clip(samples + 5 * deviation, 0, len(values) - 1), None, len(values))
    few = np.cumsum(np.maximum(law, 30 / 300_000)) // 0.01  # some hundred groups of values
    expected, found = (np.bincount(few.astype(int), of) for of in (law, counts))
    kept = expected > 30 / 300_000
    rest = [[*part[kept], part[~kept].sum()] for part in (expected, found)]
    expected, found = (np.array(part)[np.array(rest[0]) > 1e-5] for part in rest)
    expected *= found.sum() / expected.sum()
    assert stats.chisquare(found, expected).pvalue > RARELY


def test_samples_of_the_most_bits_are_normal_but_for_their_grid():
    samples = discrete_gaussian(31, 100_000) / 2.0**31
    assert stats.kstest(samples, "norm").pvalue > RARELY
    assert len(np.unique(samples)) > len(samples) - 100
    with pytest.raises(ValueError, match="bits must be from 0 to 31"):
        discrete_gaussian(32, 1)


@pytest.mark.parametrize("bits", [1, 20, 63])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_bernoulli_is_as_likely_as_its_exponential(bits, share):
    a = np.full(200_000, int(share * 2**bits), np.uint64).astype(np.int64)
    if bits == 63 and share == 1.0:
        a -= 1  # 2^63 is no int64
    trues = discrete._bernoulli(a, bits).sum()
    exact = np.exp(-a[0] / 2.0**bits)
    if exact == 1.0:
        assert trues == len(a)
    else:
        assert stats.binomtest(int(trues), len(a), exact).pvalue > RARELY


@pytest.mark.parametrize("k, draws", [(2, 200_000), (3, 200_000), (30_000, 10_000_000)])
def test_one_in_k_is(k, draws):
    trues = int(discrete._one_in(k, draws).sum())
    assert stats.binomtest(trues, draws, 1 / k).pvalue > RARELY


def loss_fn(x, samples):
    return jax.numpy.logaddexp(0.0, -samples["b"] * (samples["a"] @ x["w"] + x["c"]))


def problem_of(kind, rows=ROWS, dim=DIM):
    """A problem of one client; the norms of its records are from 1e-3 to 1e3."""
    A = RNG.normal(size=(1, rows, dim)) * np.logspace(-3, 3, rows)[:, None]
    b = np.sign(RNG.normal(size=(1, rows)))
    if kind == "rows":
        return ff.problems.Logistic(A, b, penalty=0.1)
    samples = [{"a": A[0], "b": b[0]}]
    return ff.problems.from_loss(
        loss_fn, {"w": np.zeros(dim), "c": np.zeros(())}, samples, eval_data=samples[0],
        batch_size=None, dtype=kind, stream="fixed_order",
    )  # fmt: skip


class Sum:
    """Sums in steps of one client's gradient at a model, of any of its data."""

    def __init__(self, problem, level="record", noise=20.0):
        self.objective, self.level = problem.objective, level
        self.data = tree.map(lambda a: np.array(a[0]), problem.data)

        def near(a):  # 0, where no record is fitted yet
            return (a + 1e-6 * RNG.normal(size=np.shape(a))).astype(np.asarray(a).dtype)

        self.x = tree.map(near, problem.x0)
        most = sensitivity(self.objective, level, CLIP, self.data)
        self.steps = grid(noise, float(most), tree.size(self.x))

    @property
    def batch(self):
        return Batch(jax.random.key(0), 0) if self.objective.stochastic else None

    def __call__(self, data):
        given = self.objective, self.level, CLIP, self.x, data, self.batch
        return sum_in_steps(contributions(*given), self.steps)

    def change(self, record=None, order=None, **fields):
        """The data in another order, or with another record."""
        data = tree.map(np.array, self.data)
        rows = data["samples"] if "samples" in data else data
        names = ["a", "b"] if "samples" in data else ["A", "wb"]
        for name in names:
            if order is not None:
                rows[name] = rows[name][order]
        for name, value in fields.items():
            rows[dict(zip(("features", "label"), names, strict=True))[name]][record] = value
        return data


@pytest.mark.parametrize(
    "kind, level, rows, dim",
    [
        *((k, "record", ROWS, DIM) for k in ("rows", "float64", "float32")),
        *((k, "client", ROWS, DIM) for k in ("rows", "float64", "float32")),
        *((k, "record", 7, 1 << 21) for k in ("rows", "float32")),  # in blocks of 4, of 3
    ],
)
def test_a_sum_in_steps_is_the_clipped_gradient(kind, level, rows, dim):
    one = Sum(problem_of(kind, rows, dim), level)
    given = one.objective, level, CLIP, one.x, one.data, one.batch
    exact, _ = clipped_gradient(*given)
    if kind == "rows" and level == "record":
        exact = exact - one.objective.penalty * one.x
    flat = np.concatenate(
        [np.ravel(g) for g in tree.leaves(tree.map(lambda a, g: g, one.x, exact))]
    )
    error = np.abs(one.steps.spacing * one(one.data) - flat).max()
    assert error <= (1 if level == "client" else rows) * one.steps.spacing / 2 + 1e-6 * CLIP
    assert np.abs(flat).max() > 20 * one.steps.spacing


@pytest.mark.parametrize("kind", ["rows", "float64", "float32"])
def test_no_record_changes_a_sum_by_more_than_the_noise_is_for(kind):
    """Nor does one that overflows, or is not a number; some come close to the bound."""
    one = Sum(problem_of(kind))
    changes = []
    for record in range(ROWS):
        without = one(one.change(record, label=0.0))
        label = one.change()["wb" if kind == "rows" else "samples"]
        label = label[record] if kind == "rows" else label["b"][record]
        for size in (1e-30, 0.1, 1.0, 1e3, 1e30, 1e200, np.inf, np.nan):
            with np.errstate(all="ignore"):
                features = (size * RNG.normal(size=DIM)).astype(
                    np.float32 if kind == "float32" else float
                )
                there = one(one.change(record, features=features, label=label))
            changes.append(int(((there - without) ** 2).sum()))
    assert 0.96 * one.steps.largest < max(changes) <= one.steps.largest


def test_what_floating_point_gets_wrong_in_a_norm_counts_as_nothing():
    steps = grid(20.0, 1e-201, 9)
    parts = np.full((1, 9), 1e-200), np.array([1e-201])  # the squares underflow to 0
    assert not sum_in_steps([parts], steps).any()


@pytest.mark.parametrize("dim", [1, 100, 10_000])
def test_rounding_never_makes_a_clipped_part_too_large(dim):
    for noise in np.linspace(1, 2, 50):
        steps = grid(noise, 1.0, dim)
        parts = np.ones((1, dim)), np.array([1.0])
        assert 0.97 * steps.largest < (sum_in_steps([parts], steps) ** 2).sum() <= steps.largest


@pytest.mark.parametrize("kind", ["rows", "float64", "float32"])
def test_a_sum_does_not_depend_on_order_or_on_records_of_nothing(kind):
    one = Sum(problem_of(kind))
    for _ in range(20):
        order = RNG.permutation(ROWS)
        np.testing.assert_array_equal(one(one.change(order=order)), one(one.data))
    without = one.change(3, label=0.0)
    for features in (0.0, 1.0):
        np.testing.assert_array_equal(
            one(one.change(3, label=0.0, features=features)), one(without)
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_low_bits_of_a_push_do_not_tell_whether_a_record_is_there(dtype):
    """They do for the noise of a simulation: 40 of 40 entries against some 4."""
    canary, count = attacks.Canary(dtype, noise_for(0.16, 1, accountant="rdp")), 60
    for there in (0, 1):
        floating, pushes = canary.floating(there, count), canary.pushes(there, count)
        guesses = attacks.low_bits(canary, floating, RNG)
        assert (guesses == there).all()
        right = int((attacks.low_bits(canary, pushes, RNG) == there).sum())
        assert stats.binomtest(right, count, 0.5).pvalue > RARELY
    if dtype == "float64":  # what is sent is on the grid
        spacing = grid(canary.problem.noise, 0.5 / 20, 40).spacing
        np.testing.assert_array_equal(np.rint(pushes / spacing) * spacing, pushes)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_audit_finds_no_more_than_epsilon_allows_and_would_find_more(dtype):
    claimed = 1.0
    noise = noise_for(claimed, 1, accountant="rdp")
    for actual, holds in ((noise, True), (noise / 16, False)):
        canary = attacks.Canary(dtype, actual)
        scores = [attacks.likelihoods(canary, canary.pushes(t, 150)) for t in (0, 1)]
        assert (attacks.least_epsilon(*scores) <= claimed) == holds


@pytest.mark.parametrize("noise, dim", [(1e-6, 3), (1e7, 100)])
def test_noise_that_whole_numbers_cannot_carry_is_refused(noise, dim):
    with pytest.raises(ValueError, match=r"noise of a deployed site must be at least 2\*\*-16"):
        grid(noise, 1.0, dim)


def test_rounding_costs_less_than_a_hundredth():
    for noise in (2.0**-16, 0.3, 1.0, 20.0, 3000.0):
        for dim in (1, 100, 10**8):
            if noise * dim**0.5 < 2**25:
                steps = grid(noise, 1.0, dim)
                assert 1 < 2**steps.bits * steps.spacing / noise < 1.01
                assert steps.largest <= (2**steps.bits / noise) ** 2 <= 2**52


def test_every_gradient_has_other_noise_and_the_structure_of_the_model():
    problem = Private(problem_of("float32"), clip=CLIP, noise=5.0)
    data = tree.map(lambda a: a[0], problem.data)
    x = tree.map(np.asarray, problem.x0)
    gradient = private_gradient(problem.objective, data)
    one, other = (gradient(x, Batch(jax.random.key(0), 0)) for _ in range(2))
    assert list(one) == list(x) and one["c"].shape == () and one["w"].dtype == "float32"
    assert not np.array_equal(one["w"], other["w"])

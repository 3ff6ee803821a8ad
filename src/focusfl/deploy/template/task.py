"""What is learned, and from what: logistic regression in numpy. Make it yours."""

import zlib

import numpy as np

from focusfl import Focus

ALGORITHM = Focus()
FEATURES = 10
PARAMS = {"weight": np.zeros(FEATURES), "bias": np.zeros(1)}
PENALTY = 0.01


def rows(context):
    """This site's table: `--node-config 'data="FILE.npz"'` with x and y, or drawn."""
    if "data" in context.node_config:
        with np.load(context.node_config["data"]) as file:
            return file["x"], file["y"]
    site = str(context.node_config["site"])
    rng = np.random.default_rng(zlib.crc32(site.encode()))  # its own, every time
    x = rng.standard_normal((200, FEATURES)) + rng.standard_normal(FEATURES) / 2
    chance = 1 / (1 + np.exp(-x @ np.linspace(-1, 1, FEATURES)))
    return x, (rng.random(200) < chance).astype(float)


def chances(params, x):
    """How likely each row is a 1."""
    return 1 / (1 + np.exp(-(x @ params["weight"] + params["bias"])))


def gradient(params, x, y):
    """Of the mean log loss, with a penalty on all parameters."""
    wrong = (chances(params, x) - y) / len(y)
    return {
        "weight": wrong @ x + PENALTY * params["weight"],
        "bias": wrong.sum(keepdims=True) + PENALTY * params["bias"],
    }


def metrics(params, x, y):
    """What this site says about a model; the mean over sites is weighted by rows."""
    p = chances(params, x)
    return {
        "loss": -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)),
        "accuracy": np.mean((p > 0.5) == y),
        "num-examples": len(y),
    }

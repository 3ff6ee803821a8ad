"""Runs on several devices beside the same on one; a process for test_devices.py.

Usage: python on_devices.py           # prints how far apart they are, as JSON
       python on_devices.py PORT I    # the same, as process I of two
"""

import json
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from unittest.mock import patch

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import Diary, Nested, quadratic, simulate, sweep, walked  # noqa: E402

import focusfl as ff  # noqa: E402
from focusfl.participation import Bernoulli, Cyclic, Full, Uniform  # noqa: E402
from focusfl.simulation import plan as plan
from focusfl.simulation import runner as simulator  # noqa: E402
from focusfl.simulation import scan as program  # noqa: E402
from focusfl.studies import runner, spec  # noqa: E402

HOW = {"rounds": 40, "lr": 0.02, "local_steps": 2}
plan.SPARE = 0  # participants share fewer slots than there are clients
COLLECTIVE = re.compile(r" (all-\w+|reduce-scatter|collective-\w+)(?:-start)?\(")


# Draws batches, in float64.
drawn_by = partial(walked, dtype="float64", stream="with_replacement")


def apart(one, other):
    """The largest gap between two results, relative where numbers are large."""
    gap = 0.0
    for name in ("x", "server", "clients", "metrics", "trajectory", "clients_metrics"):
        pairs = getattr(one, name), getattr(other, name)
        assert jax.tree.structure(pairs[0]) == jax.tree.structure(pairs[1]), name
        for a, b in zip(*map(jax.tree.leaves, pairs), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, name
            gap = max(gap, float((np.abs(a - b) / (1 + np.abs(a))).max(initial=0)))
    assert one.diverged_at == other.diverged_at
    return gap


def both(algorithm, problem, who, **more):
    how = HOW | more
    one = simulate(algorithm, problem, who, **how)
    many = simulate(algorithm, problem, who, devices=jax.device_count(), **how)
    return apart(one, many)


def each(algorithm, problem, who, **more):
    """Runs side by side."""
    how = {"rounds": 40, "lrs": [0.01, 0.02], "seed": [0, 3], **more}
    ones = sweep(algorithm, problem, who, **how)
    manys = sweep(algorithm, problem, who, devices=jax.device_count(), **how)
    return max(map(apart, ones, manys))


def resumed(problem, who):
    """Ended after some rounds and called again."""
    with tempfile.TemporaryDirectory() as folder:
        how = HOW | {"checkpoint": folder, "checkpoint_every": 0}
        how |= {"devices": jax.device_count()}
        part = simulate(ff.Scaffold(), problem, who, callbacks=enough, **how)
        whole = simulate(ff.Scaffold(), problem, who, **how)
    assert len(part.metrics["loss"]) < len(whole.metrics["loss"]) == 41
    return apart(simulate(ff.Scaffold(), problem, who, **HOW), whole)


def enough(done, _):
    return done >= 16


def studied():
    """A study that says how many devices it wants; two of its runs would be at once."""
    table = {
        "rounds": 40, "lr": [1e-3, 2e-3],
        "problem": {"kind": "ridge", "num_clients": 6, "dim": 6, "rows": 12},
        "participation": {"uniform": {"m": 3}}, "algorithms": {"focus": {}, "mifa": {}},
    }  # fmt: skip
    ones, manys = (
        results_of(spec.parse(table | more, "study"))
        for more in ({}, {"devices": jax.device_count()})
    )
    return max(apart(ones[which], manys[which]) for which in ones | manys)


def results_of(this):
    """The results that a study makes its runs of, by what they are of."""
    found, make = {}, runner.make_run

    def keep(name, result, *more):
        found[name, result.lr] = result
        return make(name, result, *more)

    with patch.object(runner, "make_run", keep):
        runs = list(runner.run(this))
    assert len(found) == len(runs) == 4
    return found


def messages(algorithm, problem, who):
    """What crosses between devices in the compiled program, branch by branch."""
    texts, real = [], program.scan_rounds

    def spy(*about):
        texts.append(real.lower(*about).compile().as_text())
        return real(*about)

    program.scan_rounds = spy
    simulate(algorithm, problem, who, devices=jax.device_count(), **HOW)
    program.scan_rounds = real
    return COLLECTIVE.findall(texts[0])


def refused(**more):
    try:
        simulate(ff.Focus(), quadratic(), Full(), **HOW, **more)
    except ValueError as error:
        return str(error)


def on_one_machine():
    some, few, quick, drawn = Bernoulli(0.15), Uniform(7), quadratic(41), drawn_by(41)
    found = {
        f"{type(algorithm).__name__} quadratic bernoulli": both(algorithm, quick, some)
        for algorithm in (ff.Focus(), ff.FedAvg(), ff.Scaffold(), ff.FedAU(), ff.MIFA())
    }
    for algorithm in (ff.Focus(), ff.MIFA()):
        name = f"{type(algorithm).__name__} from_loss uniform"
        found[name] = both(algorithm, drawn, few)
    found["Focus quadratic uniform"] = both(ff.Focus(), quick, few)
    found["Focus from_loss bernoulli"] = both(ff.Focus(), drawn, some)
    found["has_after_update"] = both(ff.Scaffnew(), quick, Full())
    found["keeps a diary"] = both(Diary(), quick, some)
    found["nested model"] = both(
        ff.Scaffold(option=1), Nested(), Bernoulli(0.5), record_models=True
    )
    found["fewer clients than devices"] = both(ff.Focus(), quadratic(3), Cyclic(2))
    found["empty rounds"] = both(ff.MIFA(), quick, Bernoulli(0.01), on_empty="step")
    found["divergence"] = both(ff.FedAvg(), quick, some, lr=5.0, on_divergence="ignore")
    found["a target"] = both(ff.Focus(), quick, few, callbacks=ff.Stop(tolerance=0.5))
    found["targets"] = each(ff.Focus(), quick, few, callbacks=ff.Stop(tolerance=0.8))
    served = {"per_client": True, "eval_every": 7}
    found["who is served, by a formula"] = both(ff.Focus(), quick, some, **served)
    found["who is served, by samples"] = both(ff.FedAvg(), drawn, few, **served)
    found["sweep"] = each(ff.Focus(warm_start=True), drawn, Bernoulli(0.02))
    uneven = ff.problems.Quadratic(quick.H, quick.h, weights=np.geomspace(0.1, 100, 41))
    found["weights"] = each(ff.Focus(warm_start=True), uneven, Bernoulli(0.02), lrs=[1e-4, 2e-4])
    found["study"] = studied()
    simulator.chunk_policy = lambda *_: plan.ChunkPolicy(8, 50, 3)  # some chunks where there is one
    found["checkpoint"] = resumed(drawn, few)
    return {
        "gaps": found,
        "messages": messages(ff.Scaffold(option=1), Nested(), Full()),
        "too many": refused(devices=5),
        "no number": refused(devices=0),
        "off the device": refused(devices=4, client_state="disk"),
    }


def as_one_of_two(port, number):
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
    assert jax.process_count() == 2 and jax.device_count() == 4
    return {
        "gaps": {
            "quadratic": both(ff.Scaffold(), quadratic(10), Bernoulli(0.3), per_client=True),
            "from_loss": both(ff.Focus(warm_start=True), drawn_by(10), Uniform(3)),
        },
        "too few": refused(devices=2),
        "checkpoint": refused(devices=4, checkpoint="never"),
    }


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    print(json.dumps(as_one_of_two(*numbers) if numbers else on_one_machine()))

"""The end of a training: where the model stands, who took part, what went wrong."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from focusfl.algorithms import focus
from focusfl.core import gradient_sum
from focusfl.core.tree import Tree
from focusfl.flower import events
from focusfl.flower.evaluation import Evaluation
from focusfl.flower.health import Health
from focusfl.flower.job import Job
from focusfl.flower.protocol import ProtocolServer
from focusfl.flower.protocol.messages import leaves

LEFT_OUT = (
    "what it gives cannot count, time and again: what it gave before is taken back, "
    "and it is asked again when the server is next started."
)
ROUNDING = 1e4  # a gradient below so many units of rounding, of the largest, is zero


def who(sites: Collection[str], everybody: Sequence[str]) -> str:
    """Name some of the sites, in few words."""
    if len(sites) == len(everybody):
        return f"all {len(everybody)} sites"
    names = f" ({', '.join(sorted(sites))})" if 0 < len(sites) <= events.NAMED else ""
    return f"{len(sites)} of {len(everybody)} sites{names}"


def budgets_spent(job: Job, protocol: ProtocolServer) -> str:
    """Say why no round can be closed any more, if too many private sites have spent their
    budgets; empty as long as one can."""
    away = {*protocol.gone, *protocol.spent}
    left = len(job.sites) - len(away)
    if not protocol.spent or left >= job.least or protocol.round >= job.rounds:
        return ""
    return (
        f"{len(protocol.spent)} of {len(job.sites)} sites have spent their privacy "
        f"budgets: round {protocol.round} of {job.rounds} needs {job.least} and has {left}."
    )


class Unhealthy(RuntimeError):
    """A training that did not end well. Its results are written all the same."""


def facts_of_end(
    job: Job, protocol: ProtocolServer, past: Sequence[Mapping[str, Any]],
    measured: Mapping[str, float], test: Evaluation | None, diverged: bool,
) -> dict[str, Any]:  # fmt: skip
    """Collect what the event `end` of a job says.

    Args:
        job: what was learned.
        protocol: has the model.
        past: all events of the job.
        measured: metrics of the model that needed no site.
        test: the last evaluation on the sites, if there was one.
        diverged: whether the model is so large that sites could not go on.

    Returns:
        Among others `why`, reasons for which this is no healthy end, and `warnings`, these
        and what else an operator should know.
    """
    metrics, of = dict(measured), list(job.sites)  # `of`: whose the gradient is
    if test is not None and test.round == protocol.round:
        here = set(job.sites) - {*protocol.gone}
        # A server that evaluates knows of everybody; sites of those who answer.
        if "grad_norm" not in measured or protocol.gone or here == {*test.of}:
            metrics.pop("grad_norm", None)
            of = test.of
        metrics = {**test.results(), **metrics}
    health = Health(past)
    health.confirm(protocol.pushes)
    if diverged:
        why = warnings = [f"the training diverged in round {protocol.round}; lower lr."]
    else:
        why = [words for words in (budgets_spent(job, protocol), *health.failures()) if words]
        others = health.stale_warning(), _false_rest(job, protocol, past, metrics, of)
        warnings = [*why, *(words for words in others if words)]
    return {
        "metrics": metrics, "generation": protocol.generation,
        "counted": {site: health.sites[site].counted for site in job.sites},
        "warnings": warnings, "diverged": diverged, "healthy": not why, "why": why,
        **({"of": who(of, job.sites)} if "grad_norm" in metrics else {}),
    }  # fmt: skip


def _false_rest(
    job: Job, protocol: ProtocolServer, past: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, float], of: Collection[str],
) -> str:  # fmt: skip
    """Say so if a tracker stands still where the gradient does not vanish.

    Only where both are of the same sites: who was never counted is in one alone.
    """
    counted = {site for site, count in protocol.pushes.items() if count} - {*protocol.gone}
    if gradient_sum(protocol.server) is None or counted != {*of}:
        return ""
    gradient, tracker = metrics.get("grad_norm", 0.0), metrics["tracker_norm"]
    largest = max(events.metrics(event).get("tracker_norm", 0.0) for event in past)
    rounding = max(np.finfo(leaf.dtype).eps for leaf in leaves(protocol.x))
    if gradient <= ROUNDING * rounding * largest or tracker > focus.AT_REST * gradient:
        return ""
    limit = job.algorithm.max_exact_lr(1.0, max(2, job.local_steps))
    return (
        "the tracker is at rest and the gradient is not: lr is too large (eta*L "
        f"near or above {limit:g}). grad_norm {gradient:.3g}, tracker_norm {tracker:.3g}."
    )


def keep(job: Job, x: Tree | None, past: Sequence[Mapping[str, Any]]) -> None:
    """Write model and curves to the folder of the job."""
    # Imports upwards: results have one format, and it is that of studies.
    from focusfl.deploy import record

    record.keep(job, x, past)

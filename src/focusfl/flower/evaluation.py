"""Evaluation on the sites: their metrics of a model, and the gradient of all their data."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np
from flwr.app import MetricRecord, RecordDict

from focusfl.core import Server, gradient_sum, tree
from focusfl.core.metrics import check_names, has_direction, summarize_clients
from focusfl.core.tree import Tree
from focusfl.core.validation import LARGE, check_weight, shown
from focusfl.core.work import EXAMPLES
from focusfl.flower.job import Job
from focusfl.flower.protocol import Refused, Wired
from focusfl.flower.protocol.limits import norm
from focusfl.flower.protocol.messages import decode, encode, pack, unpack, unpack_model
from focusfl.flower.protocol.site import like_model
from focusfl.flower.records import from_records, to_records

METRICS, GRADIENT = "metrics", "gradient"


class Header(NamedTuple):
    """The header of an evaluation's request, and of the gradient in its reply."""

    kind: str  # "evaluate" or "gradient"
    job: str


def ask(job: str, x: Tree) -> Wired:
    """Make the request to evaluate a model, which is the same for all sites."""
    return encode(Header("evaluate", job), {"model": pack({"x": x})})


def answer(
    request: Wired,
    job: str,
    evaluate: Callable[[Tree], Mapping[str, float]] | None,
    gradient: Callable[[Tree], Tree] | None,
) -> RecordDict:
    """Make a site's reply: its metrics and its gradient, as far as it offers them.

    Args:
        request: the request, as it came.
        job: name of the training.
        evaluate: gives metrics of a model; None: it offers none.
        gradient: gives the gradient of all the site's data at a model; None: likewise.

    Raises:
        Refused: If the request is malformed, or of another job.
    """
    head, _ = decode(request, Header, {"model"})
    if head != Header("evaluate", job) or "model" not in request:
        raise Refused(f"not an evaluation of this job: {head}.")
    x = unpack_model(request["model"])
    content = RecordDict()
    if gradient:
        packed = pack(like_model(x, gradient(x)))
        content = to_records(encode(Header(GRADIENT, job), {GRADIENT: packed}))
    numbers = evaluate(x) if evaluate else {}
    content[METRICS] = MetricRecord({k: float(v) for k, v in numbers.items()})
    return content


class Evaluation:
    """An evaluation on the sites that is under way.

    Args:
        job: of the sites.
        round: rounds done when it began.
        sites: that were asked.
        x: the model.

    Attributes:
        awaited: sites that have not answered.
        of: sites that have given a gradient.
        answered: how many sites have given metrics or a gradient.
    """

    def __init__(self, job: Job, round: int, sites: Collection[str], x: Tree):
        self.round, self.awaited = round, set(sites)
        self.of: list[str] = []
        self.answered = 0
        self._job, self._weights = job, job.weights or dict.fromkeys(sites, 1)
        self._metrics: list[dict[str, float]] = []
        self._total = tree.zeros(x)  # of gradients

    def take(self, site: str, content: RecordDict | None) -> str:
        """Count a site's answer, or None; say why if its metrics cannot be averaged."""
        if site not in self.awaited:
            return ""
        self.awaited.remove(site)
        if content is None:
            return ""
        metrics, why = {}, ""
        try:
            metrics = metrics_of(content)
        except ValueError as error:
            why = f"its evaluation is left out: {error}"
        if metrics:
            self._metrics.append(metrics)
        gradient = gradient_of(content, self._job.job, self._total)
        if gradient is not None:
            self._total = tree.axpy(self._weights[site], gradient, self._total)
            self.of.append(site)
        self.answered += bool(metrics) or gradient is not None
        return why

    def results(self) -> dict[str, float]:
        """Give means over the sites weighted by their numbers of examples, the norm of
        their weighted mean gradient, and with `per_client` the metrics of the worst sites."""
        weights = [metrics.get(EXAMPLES, 1.0) for metrics in self._metrics]
        names = set.intersection(*map(set, self._metrics)) - {EXAMPLES} if weights else set()
        columns = {name: np.array([m[name] for m in self._metrics]) for name in sorted(names)}
        results = {k: float(np.average(v, weights=weights)) for k, v in columns.items()}
        if self.of:
            weight = sum(self._weights[site] for site in self.of)
            results["grad_norm"] = norm(self._total) / weight
        if not self._job.per_client:
            return results
        # Of other metrics nobody knows which end is the worst.
        directed = {name: values for name, values in columns.items() if has_direction(name)}
        return {k: float(v) for k, v in summarize_clients(directed).items()} | results


def measured(job: Job, server: Server) -> dict[str, float]:
    """Measure a model without asking anybody: the server's metrics, and the tracker's norm.

    FOCUS, and algorithms that track as it does, have `tracker_norm`: the norm of their
    estimate of the mean gradient. Others have the norm of every field beside the model.
    """
    parts = server._asdict().items()
    norms = {f"|{name}|": norm(part) for name, part in parts if name != "x"}
    if (tracker := gradient_sum(server)) is not None:
        norms = {"tracker_norm": norm(tracker) / job.total_weight}
    if job.evaluate is None:
        return norms
    metrics = {name: float(value) for name, value in job.evaluate(server.x).items()}
    check_names(metrics)
    return {**metrics, **norms}


def metrics_of(content: RecordDict) -> dict[str, float]:
    """Read a site's metrics of a model; ValueError if they cannot be averaged."""
    metrics = dict(content.metric_records.get(METRICS) or {})
    check_names(metrics)
    for name, value in metrics.items():
        # Of larger ones neither a sum nor a square is finite.
        if not isinstance(value, int | float) or not abs(value) <= LARGE:
            raise ValueError(
                f"{name} must be a finite number of at most {LARGE:g}; got {shown(value)}."
            )
    numbers = {name: float(value) for name, value in metrics.items()}  # type: ignore
    check_weight(EXAMPLES, numbers.get(EXAMPLES, 1.0))
    return numbers


def gradient_of(content: RecordDict, job: str, like: Tree) -> Tree | None:
    """Read the gradient in a site's answer; None if there is none of this job's model."""
    try:
        message = from_records(content)
        head, _ = decode(message, Header, {GRADIENT})
        if head != Header(GRADIENT, job) or GRADIENT not in message:
            return None
        return unpack(message[GRADIENT], like)
    except Refused:
        return None

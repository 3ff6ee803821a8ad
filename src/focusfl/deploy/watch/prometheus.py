"""The health of jobs as Prometheus reads it: a line of text for every number."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from focusfl.flower.health import STATES

Jobs = Mapping[str, Mapping[str, Any]]


class Family(NamedTuple):
    """Numbers of one name."""

    name: str
    kind: str  # counter or gauge
    help: str
    key: str  # in what is known of a job, or of a site


JOB = (
    Family("rounds_total", "counter", "Rounds that are over.", "round"),
    Family("rounds_planned", "gauge", "Rounds of the whole training.", "rounds"),
    Family("generation", "gauge", "How often states were emptied.", "generation"),
    Family("healthy", "gauge", "1 if this were a healthy end, or is one.", "healthy"),
    Family("last_event_timestamp_seconds", "gauge", "When it spoke last.", "heard"),
    Family("strangers_total", "counter", "Nodes that were not let in.", "strangers"),
    Family("round_seconds", "gauge", "How long the last round took.", "seconds"),
)
SITE = (
    Family("site_counted_total", "counter", "Rounds it was counted in.", "counted"),
    Family("site_late_total", "counter", "Answers to an earlier round.", "late"),
    Family("site_refused_total", "counter", "Answers that were refused.", "refused"),
    Family("site_epsilon", "gauge", "What it says it has given away.", "epsilon"),
    Family("site_unanswered_total", "counter", "Requests without an answer.", "unanswered"),
    Family("site_memory_age_rounds", "gauge", "Rounds since it was counted.", "age"),
)


def exposition(jobs: Jobs) -> str:
    """All numbers of all jobs."""
    return "".join(f"{line}\n" for line in _lines(jobs))


def _lines(jobs: Jobs) -> Iterator[str]:
    for one in JOB:
        yield from _head(one)
        for name, job in jobs.items():
            yield _line(one.name, job[one.key], job=name)
    for one in SITE:
        yield from _head(one)
        for name, job in jobs.items():
            for site, own in job["sites"].items():
                if own.get(one.key) is not None:  # no memory has no age
                    yield _line(one.name, own[one.key], job=name, site=site)
    yield from _head(Family("site_state", "gauge", "1 for the state it is in.", ""))
    for name, job in jobs.items():
        for site, own in job["sites"].items():
            for state in STATES:
                here = own["state"] == state
                yield _line("site_state", here, job=name, site=site, state=state)
    yield from _head(Family("bytes_total", "counter", "Bytes of messages.", ""))
    for name, job in jobs.items():
        for way, count in job["bytes"].items():
            yield _line("bytes_total", count, job=name, direction=way)
    yield from _head(Family("metric", "gauge", "What is known of the model.", ""))
    for name, job in jobs.items():
        for metric, value in job["metrics"].items():
            yield _line("metric", value, job=name, name=metric)


def _head(one: Family) -> Iterator[str]:
    yield f"# HELP focusfl_{one.name} {one.help}"
    yield f"# TYPE focusfl_{one.name} {one.kind}"


def _line(what: str, value: float | int, **labels: str) -> str:
    named = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(
        str(float(value)), repr(float(value))
    )
    return f"focusfl_{what}{{{named}}} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

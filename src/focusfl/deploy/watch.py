"""A page for operators, and numbers for Prometheus, of the jobs in a folder.

It reads what servers write and asks nobody, so that it can be started, stopped and
started again beside them. Nobody but this machine can reach it, and nothing can be
changed by it.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from focusfl.deploy.monitor import Jobs
from focusfl.deploy.processes import LOOPBACK
from focusfl.flower.health import STATES
from focusfl.studies.report import html

HERE = Path(__file__).parent / "page"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
TEXT = "text/plain; charset=utf-8"
# Numbers for Prometheus: of a job and of a site, by their names in what is known of them.
OF_JOB = {
    "round": ("rounds", "counter", "Rounds that are over."),
    "rounds": ("rounds_planned", "gauge", "Rounds of the whole training."),
    "generation": ("generation", "gauge", "How often states were emptied."),
    "healthy": ("healthy", "gauge", "1 if this were a healthy end, or is one."),
    "heard": ("last_event_timestamp_seconds", "gauge", "When it spoke last."),
    "strangers": ("strangers", "counter", "Nodes that were not let in."),
    "seconds": ("round_seconds", "gauge", "How long the last round took."),
}
OF_SITE = {
    "counted": ("site_counted", "counter", "Rounds it was counted in."),
    "late": ("site_late", "counter", "Answers to an earlier round."),
    "refused": ("site_refused", "counter", "Answers that were refused."),
    "epsilon": ("site_epsilon", "gauge", "What it says it has given away."),
    "unanswered": ("site_unanswered", "counter", "Requests without an answer."),
    "age": ("site_memory_age_rounds", "gauge", "Rounds since it was counted."),
}


class Watch(ThreadingHTTPServer):
    """Serves the page at /, what it shows at /health.json, and /metrics."""

    daemon_threads = True
    request_queue_size = 1024  # connections of whoever says nothing shut nobody out

    def __init__(self, folder: Path, port: int):
        self.folder, self.jobs = folder, Jobs(folder)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ValueError(
                f"--port must be one that is free on this machine, or 0 for any; got "
                f"{port} ({getattr(error, 'strerror', None) or error})."
            ) from None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def look(self) -> dict[str, dict[str, Any]]:
        """Give the health of every job, by a name that tells it from the others."""
        jobs = self.jobs.look()
        names = [job["job"] for job in jobs.values()]
        return {
            job["job"] if names.count(job["job"]) == 1 else str(place.relative_to(self.folder)): job
            for place, job in jobs.items()
        }

    def page(self) -> str:
        """Make the page, which fetches the rest."""
        style = [html.HERE / "style.css", HERE / "watch.css"]
        return Template((HERE / "page.html").read_text("utf-8")).substitute(
            title=escape(self.folder.resolve().name),
            style="\n".join(file.read_text("utf-8") for file in style),
            script=(HERE / "watch.js").read_text("utf-8"),
            states=json.dumps(STATES),
        )


class _Handler(BaseHTTPRequestHandler):
    server: Watch
    server_version, sys_version = "focusfl", ""
    timeout = 5  # seconds for somebody to say what they want

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host not in (LOOPBACK, "localhost"):  # a page elsewhere that calls itself us
            self._answer(403, TEXT, f"this is for {LOOPBACK} alone\n")
        elif self.path == "/":
            self._answer(200, "text/html; charset=utf-8", self.server.page())
        elif self.path == "/health.json":
            content = {"now": time.time(), "jobs": without_infinity(self.server.look())}
            text = json.dumps(content, allow_nan=False)
            self._answer(200, "application/json", text)
        elif self.path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, exposition(self.server.look()))
        else:
            self._answer(404, TEXT, "there are /, /health.json and /metrics\n")

    do_HEAD = do_GET

    def _answer(self, code: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Be quiet: whoever looks, looks every second."""


def exposition(jobs: Mapping[str, Mapping[str, Any]]) -> str:
    """Write all numbers of all jobs in Prometheus's text format."""
    return generate_latest(_Exposition(jobs)).decode()


class _Exposition(Collector):
    """A collector of Prometheus's client, over the health of jobs."""

    def __init__(self, jobs: Mapping[str, Mapping[str, Any]]):
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """Give every family of numbers, each with its labels."""
        jobs = self._jobs
        sites = [(j, name, site) for j, job in jobs.items() for name, site in job["sites"].items()]
        for key, about in OF_JOB.items():
            yield _family(about, ["job"], [(name, job[key]) for name, job in jobs.items()])
        for key, about in OF_SITE.items():
            rows = [(*names, site.get(key)) for *names, site in sites]
            rows = [row for row in rows if row[-1] is not None]  # no memory, no age
            yield _family(about, ["job", "site"], rows)
        about = "site_state", "gauge", "1 for the state it is in."
        states = [(*names, s, site["state"] == s) for *names, site in sites for s in STATES]
        yield _family(about, ["job", "site", "state"], states)
        for about, key, label in (
            (("bytes", "counter", "Bytes of messages."), "bytes", "direction"),
            (("metric", "gauge", "What is known of the model."), "metrics", "name"),
        ):
            rows = [(name, k, v) for name, job in jobs.items() for k, v in job[key].items()]
            yield _family(about, ["job", label], rows)


def _family(about: tuple[str, str, str], labels: list[str], rows: Iterable[tuple]) -> Metric:
    """Make one family of numbers; a row has a value for every label, and the number."""
    name, kind, words = about
    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = make(f"focusfl_{name}", words, labels=labels)
    for *values, number in rows:
        family.add_metric(values, float(number))
    return family


def without_infinity(value: Any) -> Any:
    """Replace numbers that JSON does not have by None."""
    if isinstance(value, dict):
        return {key: without_infinity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinity(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

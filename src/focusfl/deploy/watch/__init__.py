"""A page for operators, and numbers for Prometheus, of the jobs in a folder.

It reads what servers write and asks nobody, so that it can be started, stopped and
started again beside them. Nobody but this machine can reach it, and nothing can be
changed by it.
"""

import json
import math
import time
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any

from focusfl.deploy.following import Jobs
from focusfl.deploy.processes import LOOPBACK
from focusfl.deploy.watch.prometheus import exposition
from focusfl.flower.health import STATES
from focusfl.studies.report import html

HERE = Path(__file__).parent
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
TEXT = "text/plain; version=0.0.4; charset=utf-8"  # as Prometheus names its format


class Watch(ThreadingHTTPServer):
    """Serves the page at /, what it shows at /health.json, and /metrics."""

    daemon_threads = True

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
        """How every job is doing, by a name that tells it from the others."""
        found = self.jobs.look()
        names = [job["job"] for job in found.values()]
        return {
            job["job"] if names.count(job["job"]) == 1 else str(place.relative_to(self.folder)): job
            for place, job in found.items()
        }

    def page(self) -> str:
        """The page, which fetches the rest."""
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
    timeout = 30  # seconds for somebody to say what they want

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host not in (LOOPBACK, "localhost"):  # a page elsewhere that calls itself us
            self._answer(403, TEXT, f"this is for {LOOPBACK} alone\n")
        elif self.path == "/":
            self._answer(200, "text/html; charset=utf-8", self.server.page())
        elif self.path == "/health.json":
            known = {"now": time.time(), "jobs": told(self.server.look())}
            text = json.dumps(known, allow_nan=False)
            self._answer(200, "application/json", text)
        elif self.path == "/metrics":
            self._answer(200, TEXT, exposition(self.server.look()))
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


def told(value: Any) -> Any:
    """A value as JSON has it, where no number is infinite or none at all."""
    if isinstance(value, dict):
        return {key: told(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [told(own) for own in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

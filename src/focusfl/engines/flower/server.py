"""The server app: rounds over Flower's grid that wait for nobody in particular."""

import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from focusfl.engines.flower import events
from focusfl.engines.flower.client import EXAMPLES
from focusfl.engines.flower.job import Job
from focusfl.engines.flower.link import Link, Reply
from focusfl.engines.flower.records import unpack
from focusfl.engines.wire import Hub, Wired
from focusfl.engines.wire.format import encode, leaves
from focusfl.engines.wire.format import pack as packed
from focusfl.tree import Tree

MODEL = "model.npz"  # in the server's folder of a job, at the end
LOOK = 5  # polls between two looks at who is online


def server_app(job: Job | Callable[[Context], Job]) -> ServerApp:
    """Make a Flower server app of a job, or of a function of Flower's context.

    Numbers and words of a job can be set in the app's configuration too, and so by
    `flwr run --run-config`.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        mine = job if isinstance(job, Job) else job(context)
        run(grid, mine.configured(context.run_config))

    return app


def run(grid: Grid, job: Job) -> None:
    """Train until all rounds are done, from where an earlier run has stopped."""
    grid = job.wrap(grid) if job.wrap else grid
    with job.hub() as hub:
        server = _Server(job, hub, Link(grid, job.sites))
        server.say("begin", pid=os.getpid(), rounds=job.rounds, **server.measured())
        server.gather()
        while hub.round < job.rounds:
            server.play()
        server.finish()


class _Server:
    """One life of a server app."""

    def __init__(self, job: Job, hub: Hub, link: Link):
        self.job, self.hub, self.link = job, hub, link
        self.online: list[str] = []
        self._polls = 0
        self._test: _Test | None = None

    def gather(self) -> None:
        """Give everybody a chance to be there before the first round."""
        until = time.monotonic() + self.job.deadline
        while len(self.online) < self._enough and time.monotonic() < until:
            self._look()
            self._receive()
            time.sleep(self.job.poll)

    def play(self) -> None:
        """Ask who is there, count who answers, and close the round."""
        hub, job, began = self.hub, self.job, time.monotonic()
        self.say("open", epoch=hub.epoch)
        asked: set[str] = set()
        before = set(hub.waiting)  # asked in an earlier round
        while True:
            self._look()
            free = [s for s in hub.free if s in self.online and s not in asked]
            self.link.ask([(s, hub.request(s)) for s in free], "train", str(hub.round))
            asked.update(free)
            self._receive()
            awaited = asked & set(hub.waiting)
            seconds = time.monotonic() - began
            if len(hub.counted) >= job.minimum and (
                len(hub.counted) >= self._enough
                or not awaited
                or seconds >= job.deadline
            ):
                break
            if not awaited and seconds >= job.deadline:
                asked.clear()  # not enough have answered: ask again who has failed
                began = time.monotonic()
            time.sleep(max(job.poll, min(seconds / 20, 1.0)))  # long rounds can wait
        number, counted = hub.round, hub.close_round()
        if counted is None:  # everybody must be heard before the first round
            return
        self.say(
            "round", round=number, counted=list(counted),
            late=[site for site in counted if site in before],
            seconds=round(seconds, 3), **self.measured(),
        )  # fmt: skip
        if job.evaluate_every and hub.round % job.evaluate_every == 0:
            self._begin_test()

    def finish(self) -> None:
        """Wait for evaluations that are under way, keep the model, say the end."""
        until = time.monotonic() + self.job.deadline
        while self._test is not None and time.monotonic() < until:
            self._receive()
            time.sleep(self.job.poll)
        self._end_test()
        self._keep()
        self.say("end", **self.measured())

    def _keep(self) -> None:
        from focusfl.data.places import renamed  # not for those who have numpy alone

        model: dict[str, Any] = dict(_named(self.hub.x))
        with renamed(self.job.place / MODEL) as part:
            np.savez(part, **model)

    def say(self, event: str, **facts: Any) -> None:
        """Tell whoever watches, here or by `flwr run --stream`."""
        now = {"round": self.hub.round, "online": self.online}
        whole = {"event": event, **now, **facts}
        events.write(self.job.place, whole)
        if words := events.describe(whole):
            print(words, flush=True)

    @property
    def _enough(self) -> int:
        return self.job.target or len(self.job.sites) - len(self.hub.gone)

    def measured(self) -> dict[str, float]:
        """What is known of the model: its metrics, and the norm of every tracker."""
        hub = self.hub
        found = {
            f"|{name}|": _norm(part)
            for name, part in hub.server._asdict().items()
            if name != "x"
        }
        if self.job.evaluate:
            found |= {k: float(v) for k, v in self.job.evaluate(hub.x).items()}
        return found

    def _look(self) -> None:
        if self._polls % LOOK == 0:
            self.online = self.link.look()
        self._polls += 1

    def _receive(self) -> None:
        for reply in self.link.poll(self.job.patience):
            if reply.kind == "evaluate":
                self._tested(reply)
            elif reply.content is None:
                self.say("nothing", site=reply.site, why=reply.why)
                self.hub.give_up(reply.site)
            else:
                verdict = self.hub.receive(reply.site, unpack(reply.content))
                if verdict.status != "applied":
                    self.say(verdict.status, site=reply.site, why=verdict.why)
                if verdict.status == "refused" and reply.last:
                    self.hub.give_up(reply.site)

    def _begin_test(self) -> None:
        """Have everybody who is online evaluate the model, beside the next rounds."""
        self._end_test()
        wired = evaluation(self.job, self.hub.x)
        self.link.ask(((s, wired) for s in self.online), "evaluate", "evaluate")
        self._test = _Test(self.hub.round, set(self.online), [])

    def _tested(self, reply: Reply) -> None:
        if self._test is None or reply.site not in self._test.awaited:
            return
        self._test.awaited.remove(reply.site)
        found = metrics_of(reply.content) if reply.content else {}
        if found:
            self._test.found.append(found)
        if not self._test.awaited:
            self._end_test()

    def _end_test(self) -> None:
        """Say what has come."""
        test, self._test = self._test, None
        if test is None or not test.found:
            return
        mean = mean_of(test.found)
        self.say("evaluation", after=test.round, sites=len(test.found), **mean)


def evaluation(job: Job, x: Tree) -> Wired:
    """Ask sites to evaluate a model."""
    return encode({"kind": "evaluate", "job": job.job}, packed({"x": x}))


def metrics_of(content: RecordDict) -> dict[str, float]:
    """What a site has found; nothing if a number of it cannot be one."""
    found = dict(content.metric_records.get("metrics") or {})
    for value in found.values():
        if not isinstance(value, int | float) or not math.isfinite(value):
            return {}
    numbers = {name: float(value) for name, value in found.items()}  # type: ignore
    return numbers if numbers.get(EXAMPLES, 1.0) > 0 else {}


def mean_of(found: list[dict[str, float]]) -> dict[str, float]:
    """Average what sites have found, weighted by how much each has looked at."""
    weights = [metrics.get(EXAMPLES, 1.0) for metrics in found]
    names = set.intersection(*(set(metrics) for metrics in found)) - {EXAMPLES}
    return {
        name: float(np.average([metrics[name] for metrics in found], weights=weights))
        for name in sorted(names)
    }


class _Test(NamedTuple):
    """An evaluation on the sites that is under way."""

    round: int
    awaited: set[str]
    found: list[dict[str, float]]


def _named(part: Any, name: str = "x") -> Iterator[tuple[str, np.ndarray]]:
    """The leaves of a model, by their paths."""
    if not isinstance(part, dict):
        yield name, part
        return
    for key, value in part.items():
        yield from _named(value, key if name == "x" else f"{name}/{key}")


def _norm(part: Any) -> float:
    squares = [float(np.sum(np.square(leaf, dtype=float))) for leaf in leaves(part)]
    return sum(squares) ** 0.5

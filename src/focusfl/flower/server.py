"""Rounds over Flower's grid: asks the sites that are online, and waits for none in particular.

`app.rounds` loops over rounds; `Server.play` is one of them:

1. `ProtocolServer.request(site)` makes a request: the model, and the version of the site's state
   that the reply must be computed from.
2. `Link.ask` sends it. The site's `client.py` and `protocol/site.py` compute a push and answer.
3. `Server.receive` takes what has come, and `ProtocolServer.receive` counts it, refuses it, or says
   that the site lacks its state, which is then sent to it at once.
4. When enough sites were counted, `ProtocolServer.close_round` updates the model and commits
   it together with the new states of these sites, in one transaction.
"""

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from focusfl.flower import evaluation, events
from focusfl.flower.ending import LEFT_OUT, budgets_spent, facts_of_end, keep, who
from focusfl.flower.evaluation import Evaluation
from focusfl.flower.job import Job
from focusfl.flower.link import Answer, Link
from focusfl.flower.protocol import ProtocolServer, Wired
from focusfl.flower.protocol.limits import norm
from focusfl.flower.records import from_records, privacy_of, size
from focusfl.simulation.divergence import BLOWN_UP

LOOK = 5  # polls between two looks at who is online
PACES = 10  # rounds whose seconds say how long those to come will take
MAX_REASON = 2000  # letters of a site's own words that are written down


class Server:
    """One life of a server app: plays rounds, has sites evaluate, writes what happens.

    Args:
        job: what is learned, by whom, and when a round is over.
        protocol: says which replies count, and has the model.
        link: to the sites.
        closes_empty: whether a round is over, too, when `job.minimum` sites have answered
            and none of them was counted.
    """

    def __init__(self, job: Job, protocol: ProtocolServer, link: Link, closes_empty: bool = False):
        self.job, self.protocol, self.link = job, protocol, link
        self._closes_empty = closes_empty
        self.online: list[str] = []
        self._polls = 0
        self._test: Evaluation | None = None  # under way
        self._tested: Evaluation | None = None  # the last that is over
        self._paces: deque[float] = deque(maxlen=PACES)  # seconds that rounds took
        self._bytes = {"down": 0, "up": 0}  # since the last round
        self._epsilons: dict[str, float] = {}  # since the last round, as sites say
        self._needed: list[str] = []  # whom the warm-up was waiting for last

    # A job

    def begin(self) -> None:
        """Say what begins, with what an operator should know."""
        self.say(
            "begin", pid=os.getpid(), rounds=self.job.rounds,
            everybody=list(self.job.sites), metrics=self.measured(),
        )  # fmt: skip
        for why in self.job.notices():
            self.say("notice", why=why)

    def gather(self, seconds: float) -> None:
        """Give everybody a chance to be there before the first round."""
        self._wait(lambda: len(self.online) >= self._enough, seconds)

    def finish(self) -> list[str]:
        """Look where the model stands, keep what was learned, say the end.

        Returns:
            Why it was no healthy end; empty if it was.
        """
        self._await_test()
        over = self._tested is not None and self._tested.round == self.protocol.round
        if self._asks_sites and not over and not self.diverged:
            self._begin_test()
            self._await_test()
        job, protocol, past = self.job, self.protocol, events.read(self.job.place)
        facts = facts_of_end(job, protocol, past, self.measured(), self._tested, self.diverged)
        for why in facts["warnings"]:
            self.say("warning", why=why)
        end = self._event("end", **facts)
        keep(job, protocol.x, [*past, end])
        self._publish(end)  # the last: whoever follows may stop everything now
        return facts["why"]

    @property
    def diverged(self) -> bool:
        """Whether the model is so large, beside the first, that sites cannot go on."""
        if self.protocol.x is None:  # of secure sums
            return False
        limit = BLOWN_UP * max(1.0, norm(self.job.params))
        return not norm(self.protocol.x) <= limit

    def measured(self) -> dict[str, float]:
        """Give the metrics of the model that need no site; none of one that is sealed."""
        if self.protocol.x is None:
            return {}
        return evaluation.measured(self.job, self.protocol.server)

    # A round

    def play(self) -> Collection[str]:
        """Ask who is there, count who answers, and close the round; give who was counted."""
        protocol, job, began = self.protocol, self.job, time.monotonic()
        opened = began
        self.say("open", generation=protocol.generation)
        if protocol.round == 0 and not (self._test or self._tested) and self._asks_sites:
            self._begin_test()  # what is learned is seen against where it began
        asked: set[str] = set()
        before = self.link.owing  # asked in an earlier round
        while True:
            self.look()
            busy = asked | self.link.owing
            free = [s for s in protocol.free if s in self.online and s not in busy]
            self.ask([(s, protocol.round, protocol.request(s)) for s in free], "train")
            asked.update(free)
            again = self.receive()  # who lacks its state is sent it at once
            asked -= again
            awaited = asked & self.link.owing
            seconds, counted = time.monotonic() - began, len(protocol.counted)
            # Of a warm-up every part is committed: each site is heard but once.
            least = 1 if protocol.warming else job.least
            closes_empty = self._closes_empty and not protocol.warming and len(asked) >= least
            if (
                (counted >= least or closes_empty)
                and not again
                and (counted >= self._enough or not awaited or seconds >= job.deadline)
            ):
                break
            if budgets_spent(job, protocol):
                return ()
            if protocol.warming and not awaited:
                self._say_needed()
            if not awaited and seconds >= job.deadline:
                asked.clear()  # not enough have answered: ask again who has failed
                began = time.monotonic()
            time.sleep(max(job.poll, min(seconds / 20, 1.0)))  # long rounds can wait
        return self.close_round(before, opened)

    def close_round(self, before: Collection[str], opened: float) -> Collection[str]:
        """Close a round, and say what it was.

        Args:
            before: sites that were asked in an earlier round: their answers are late.
            opened: when the round was opened, by `time.monotonic`, in seconds.

        Returns:
            Sites that were counted; empty while a warm-up waits for others.
        """
        protocol, job = self.protocol, self.job
        number, out, warming = protocol.round, {*protocol.barred}, protocol.warming
        counted = protocol.close_round()
        for site in {*protocol.barred} - out:
            self.say("left out", site=site, why=LEFT_OUT)
        if counted is None:
            return ()
        seconds = time.monotonic() - opened
        if warming:  # in several parts, perhaps: everybody has pushed in one
            counted = tuple(site for site, pushes in protocol.pushes.items() if pushes)
        facts: dict[str, Any] = {
            "counted": list(counted), "seconds": round(seconds, 3), "bytes": self._bytes,
            "generation": protocol.generation,
        }  # fmt: skip
        facts |= {"epsilon": self._epsilons} if self._epsilons else {}
        self._bytes, self._epsilons = {"down": 0, "up": 0}, {}
        if warming:
            self.say("warm", why="everybody was heard before the first round", **facts)
            return counted
        self._paces.append(seconds)
        eta = statistics.median(self._paces) * (job.rounds - protocol.round)
        self.say(
            "round", round=number, rounds=job.rounds, **facts,
            missing=[s for s in job.sites if s not in {*counted, *protocol.gone}],
            late=[site for site in counted if site in before], eta=round(eta, 1),
            gone=list(protocol.gone), barred=list(protocol.barred),
            metrics=self.measured(),
        )  # fmt: skip
        if job.eval_every and protocol.round % job.eval_every == 0:
            self._begin_test()
        if not counted:
            why = f"round {number + 1} counted no site; their last words are above."
            self.say("warning", why=why)
        return counted

    @property
    def _enough(self) -> int:
        return self.job.target or len(self.job.sites) - len(self.protocol.gone)

    def _say_needed(self) -> None:
        """Say for whom the warm-up waits: once, until something changes."""
        needed = list(self.protocol.free)
        if needed and needed != self._needed:
            why = f"for {who(needed, self.job.sites)}, before the first round"
            self.say("waiting", missing=needed, why=why)
        self._needed = needed

    # Messages

    def look(self) -> None:
        """See who is online, every few polls, and say who was not let in."""
        if self._polls % LOOK == 0:
            self.online = self.link.look()
        self._polls += 1
        for why in self.link.refused():
            self.say("stranger", why=why)

    def ask(self, requests: list[tuple[str, int, Wired]], kind: str) -> None:
        """Send a message each to some sites, with the number of the round or turn."""
        self._bytes["down"] += sum(size(wired) for _, _, wired in requests)
        group = str(self.protocol.round) if kind == "train" else kind
        self.link.ask(requests, kind, group)

    def receive(self) -> set[str]:
        """Take what has come; give who lacks its state and must be asked again."""
        again = set()
        for answer in self.link.poll(self.job.patience):
            if answer.pending.kind == "evaluate":
                self._take_evaluation(answer)
            elif self._take_push(answer) == "missing":
                again.add(answer.site)
        return again

    def _take_push(self, answer: Answer) -> str:
        """Count a site's answer to a request; say so where it cannot be.

        Returns:
            What became of it: the status of its `Receipt`; "nothing" if there is none.
        """
        site = answer.site
        if answer.content is None:
            self.say("nothing", site=site, why=answer.why[:MAX_REASON])
            return "nothing"
        message = from_records(answer.content)
        self._bytes["up"] += size(message)
        self._epsilons |= privacy_of(site, answer.content)
        receipt = self.protocol.receive(site, message)
        if not receipt.applied:
            self.say(receipt.status, site=site, why=receipt.why)
        return receipt.status

    # Evaluation on the sites, beside the rounds

    @property
    def _asks_sites(self) -> bool:
        """Whether sites are to evaluate, or nobody else gives a grad_norm.

        Sites of secure sums do not: a server could learn from the metrics of a model it chose.
        """
        if self.protocol.x is None:
            return False
        knows = "grad_norm" in self.measured() and not self.protocol.gone
        return bool(self.job.eval_every) or not knows

    def _begin_test(self) -> None:
        """Have everybody who is online evaluate the model, beside the next rounds."""
        self._end_test()
        protocol, job = self.protocol, self.job
        sites = [site for site in self.online if site not in protocol.gone]
        wired = evaluation.ask(job.job, protocol.x)
        self.ask([(site, protocol.round, wired) for site in sites], "evaluate")
        self._test = Evaluation(job, protocol.round, sites, protocol.x)

    def _take_evaluation(self, answer: Answer) -> None:
        test = self._test
        if test is None or answer.pending.number != test.round:  # of an earlier one
            return
        if answer.content is not None:
            self._bytes["up"] += size(from_records(answer.content))
        if why := test.take(answer.site, answer.content):
            self.say("unfit", site=answer.site, why=why)
        if not test.awaited:
            self._end_test()

    def _await_test(self) -> None:
        """Wait for an evaluation that is under way, as long as for a round."""
        self._wait(lambda: self._test is None, self.job.deadline)
        self._end_test()

    def _wait(self, over: Callable[[], bool], seconds: float) -> None:
        """Receive what comes until something is over, for so many seconds at most."""
        until = time.monotonic() + seconds
        while not over() and time.monotonic() < until:
            self.look()
            self.receive()
            time.sleep(self.job.poll)

    def _end_test(self) -> None:
        """Keep the evaluation that is under way, if one is, and say its metrics."""
        test, self._test = self._test, None
        if test is None:
            return
        self._tested = test
        if metrics := test.results():
            self.say(
                "evaluation", after=test.round, sites=test.answered,
                of=who(test.of, self.job.sites), metrics=metrics,
            )  # fmt: skip

    # Events

    def say(self, event: str, **facts: Any) -> None:
        """Tell whoever watches, here or by `flwr run --stream`."""
        self._publish(self._event(event, **facts))

    def _event(self, event: str, **facts: Any) -> dict[str, Any]:
        return {"event": event, "round": self.protocol.round, "online": self.online, **facts}

    def _publish(self, event: dict[str, Any]) -> None:
        events.write(self.job.place, event)
        if words := events.describe(event):
            print(words, flush=True)

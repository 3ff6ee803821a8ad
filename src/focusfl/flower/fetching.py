"""Answers fetched so that one which never ends keeps no other waiting."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from flwr.app import Message

STALL = 15.0  # seconds after which what was asked for together is asked for one by one
PROMPT = 2.0  # seconds in which one by one is found out who is to blame

Pull = Callable[[Sequence[str]], Iterable[Message]]


class _Call(threading.Thread):
    """One call of Flower's, which may take minutes."""

    def __init__(self, pull: Pull, ids: Sequence[str]):
        super().__init__(daemon=True)  # a server app that is done does not wait for it
        self.ids, self._pull = list(ids), pull
        self.found: list[Message] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.found = list(self._pull(self.ids))
        except Exception as error:
            self.error = error


class Fetching:
    """Fetches answers, by the ids of what was asked.

    Flower hands out an answer when a site begins to send it and then waits for the
    rest: for minutes, if that site has died or was refused. Whoever is not to blame is
    fetched without it meanwhile.
    """

    def __init__(self, pull: Pull):
        self._pull = pull
        self._calls: list[_Call] = []  # that may still go on
        self._whole: _Call | None = None  # of these, the one of everybody

    def __call__(self, ids: Sequence[str]) -> list[Message]:
        """What has come; raise what Flower raises where nothing has."""
        if self._whole is not None and self._whole.is_alive():
            self._start([[key] for key in self._whole.ids if key in ids], PROMPT)
            self._whole = None  # what it gets comes when it is done
        waiting = [call for call in self._calls if call.is_alive()]
        stalled = {call.ids[0] for call in waiting if len(call.ids) == 1}
        if free := [key for key in ids if key not in stalled]:
            (self._whole,) = self._start([free], STALL)
        done = [call for call in self._calls if not call.is_alive()]
        self._calls = [call for call in self._calls if call not in done]
        messages = [message for call in done for message in call.found]
        errors = [call.error for call in done if call.error]
        if errors and not messages:
            raise errors[0]
        return messages

    def _start(self, parts: list[list[str]], patience: float) -> list[_Call]:
        """Begin some calls, and give them a while."""
        calls = [_Call(self._pull, ids) for ids in parts]
        until = time.monotonic() + patience
        for call in calls:
            call.join(max(0.0, until - time.monotonic()))
        self._calls += calls
        return calls

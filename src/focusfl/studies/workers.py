"""Groups of runs of a study, shared by a few threads or by processes."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing.context import SpawnContext
from multiprocessing.managers import SyncManager
from pathlib import Path
from queue import Empty
from typing import Any

from focusfl.simulation.spec import Progress
from focusfl.studies import config
from focusfl.studies.config import Study
from focusfl.studies.results import Run
from focusfl.studies.study import RunGroup, Watch, run_group, threads

TICK = 0.1  # seconds between two looks at what workers say

Done = Iterator[tuple[RunGroup, list[Run]]]


def run_all(
    study: Study,
    todo: list[RunGroup],
    watch: Watch | None,
    workers: int,
    unfinished: Callable[[RunGroup], Path],
) -> Done:
    """Run groups, in so many processes, or in threads of this one if 0.

    `unfinished` says in which folder a group keeps its checkpoints.
    """
    if workers and todo:
        yield from _in_processes(study, todo, watch, workers, unfinished)
        return

    def one(group: RunGroup) -> list[Run]:
        return run_group(study, group, watch, unfinished(group))

    # As they end, not in order: an interrupt must not lose what waits for its turn.
    pool = ThreadPoolExecutor(threads(study))
    try:
        waiting = {pool.submit(one, group): group for group in todo}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _in_processes(
    study: Study,
    todo: list[RunGroup],
    watch: Watch | None,
    workers: int,
    unfinished: Callable[[RunGroup], Path],
) -> Done:
    context = multiprocessing.get_context("spawn")
    with messages(context) as said:
        about = study.source, study.name, study.folder, said
        pool = ProcessPoolExecutor(min(workers, len(todo)), context, _begin, about)
        tell = _Teller(watch)
        try:
            waiting = {pool.submit(_one, group, unfinished(group)): group for group in todo}
            while waiting:
                time.sleep(TICK)
                tell(said)
                for done in [future for future in waiting if future.done()]:
                    yield waiting.pop(done), done.result()
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.kill()  # it writes nothing: that is done here
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def messages(context: SpawnContext) -> Iterator[Any]:
    """Give a queue that processes can write to, whoever of them is killed meanwhile."""
    manager = SyncManager(ctx=context)
    manager.start(end_with_parent)  # a process of its own, which ends with this one
    with manager:
        yield manager.Queue()


class _Teller:
    """Passes on what workers say of their groups."""

    def __init__(self, watch: Watch | None):
        self._watch = watch
        self._tell: dict[RunGroup, Progress] = {}

    def __call__(self, said: Any) -> None:
        while True:
            try:
                group, done, metrics = said.get_nowait()
            except Empty:
                return
            if self._watch and group not in self._tell:
                self._tell[group] = self._watch(group.participation, group.title)
            if self._watch:
                self._tell[group](done, metrics)


_WORKER: dict[str, Any] = {}  # what this process works for


def _begin(source: dict, name: str, folder: Path | None, said: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us will stop us
    end_with_parent()
    _WORKER.update(study=config.parse(source, name, folder), said=said)


def end_with_parent() -> None:
    """From now on, end with whoever started us, even if that was killed."""

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _one(group: RunGroup, kept: Path) -> list[Run]:
    def watch(*_: str) -> Progress:
        _WORKER["said"].put((group, 0, {}))  # it has begun, and will compile first

        def tell(done: int, metrics: Mapping[str, Any]) -> None:
            _WORKER["said"].put((group, done, dict(metrics)))

        return tell

    return run_group(_WORKER["study"], group, watch, kept)

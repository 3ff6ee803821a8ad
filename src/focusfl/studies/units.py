"""Run units of work, whatever they are, in threads of this process or in processes of their own.

Groups of a study's runs and cells of the suite are such units. A unit sends messages while it
runs, which are handled by the caller's function `heard`.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import suppress
from functools import partial
from multiprocessing.managers import SyncManager
from queue import Empty
from typing import Any, TypeVar

Message = Callable[[Any], Any]
Unit = TypeVar("Unit")
Outcome = TypeVar("Outcome")

THREADS = min(4, os.cpu_count() or 1)
TICK = 0.1  # seconds between two looks for messages of processes

_SHARED: dict[str, Any] = {}  # in a process that runs units: the queue of its messages


def run_units(
    work: Callable[[Unit, Message], Outcome],
    units: Sequence[Unit],
    workers: int = 0,
    threads: int = THREADS,
    heard: Callable[[Unit, Any], Any] = lambda unit, message: None,
    prepare: Callable[[], None] | None = None,
) -> Iterator[tuple[Unit, "Future[Outcome]"]]:
    """Carry units of work out, yielding each with its future as it ends.

    Args:
        work: is called with a unit, and with a function that sends messages about it.
        workers: processes that share the units; 0: threads of this one.
        heard: is called here with a unit and a message.
        prepare: is called first in every process.
    """
    if not units:
        return
    if not workers:
        pool, lock, ended = ThreadPoolExecutor(threads), threading.Lock(), threading.Event()

        def hear(unit: Unit, message: Any) -> Any:
            # A thread that is still at work when the caller was interrupted must not write
            # into a folder in which the caller, in a notebook say, runs the rest again.
            with lock:
                if ended.is_set():
                    raise CancelledError
                try:
                    return heard(unit, message)
                except BaseException:
                    ended.set()
                    raise

        try:
            waiting = {pool.submit(work, unit, partial(hear, unit)): unit for unit in units}
            while waiting:
                # As they end, not in order: an interrupt must not lose what waits its turn.
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    unit = waiting.pop(future)
                    if not isinstance(future.exception(), CancelledError):
                        yield unit, future
        finally:
            with lock:
                ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
        return
    context = multiprocessing.get_context("spawn")
    manager = SyncManager(ctx=context)
    manager.start(end_with_parent)  # a process of its own, whoever of the others is killed
    with manager:
        messages = manager.Queue()

        def listen() -> None:
            with suppress(Empty):
                while True:
                    place, message = messages.get_nowait()
                    heard(units[place], message)

        others = set(multiprocessing.active_children())
        processes = ProcessPoolExecutor(
            min(workers, len(units)), context, _begin, (prepare, messages)
        )
        try:
            left = {
                processes.submit(_in_process, work, place, unit): unit
                for place, unit in enumerate(units)
            }
            while left:
                done = wait(left, TICK, FIRST_COMPLETED).done
                listen()
                for future in done:
                    yield left.pop(future), future
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()  # it writes nothing: that is done here
            raise
        finally:
            processes.shutdown(cancel_futures=True)


def _begin(prepare: Callable[[], None] | None, messages: Any) -> None:
    """Make a process that shares the work ready for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us will stop us
    end_with_parent()
    _SHARED["messages"] = messages
    if prepare:
        prepare()


def _in_process(work: Callable, place: int, unit: Any) -> Any:
    return work(unit, lambda message: _SHARED["messages"].put((place, message)))


def end_with_parent() -> None:
    """From now on, end with the process that started this one, even if that is killed."""

    def follow() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()

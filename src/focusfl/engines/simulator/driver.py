"""The loop over chunks: run, keep, tell, until there are enough of them."""

from collections.abc import Callable, Iterator

from focusfl.engines.simulator.checkpoint import Checkpoint
from focusfl.engines.simulator.clients import ClientStore
from focusfl.engines.simulator.cohort import Program
from focusfl.engines.simulator.compiled import Log, State
from focusfl.engines.simulator.layout import PADDING, Plan
from focusfl.engines.simulator.logs import fetch, last_of, told_of, whole_of
from focusfl.engines.stop import Progress


def run_chunks(
    run: Callable[[Program, State, Plan], tuple[State, Log]],
    coming: Iterator[tuple[Program, Plan]],
    state: State,
    first: Log,
    kept: Checkpoint,
    clients: ClientStore,
    progress: Progress | None,
) -> tuple[State, Log]:
    """Run the chunks that are coming until there are enough; give the end and the log.

    One chunk may run on while the next is laid out.
    """
    logs, running = [first], []
    enough = state.met is not None and bool(state.met.all())
    if progress and len(first.alive) > 1:
        enough |= bool(progress(told_of(logs), last_of(first)))
    now = next(coming, None)
    while now and not enough and logs[-1].alive[-1].any():
        program, plan = now
        state, plan = clients.load(state, plan)
        state, log = run(program, state, plan)
        running.append((log, int((plan.round != PADDING).sum())))
        kept.write()  # what was kept before this chunk, while it is running
        now = next(coming, None)
        if now:
            clients.prefetch(now[1])
        due = now is not None and kept.due()
        while len(running) > (now is not None and not due):
            logs.append(fetch(*running.pop(0)))
            if progress:  # a stop that was asked for stays asked for
                enough |= bool(progress(told_of(logs), last_of(logs[-1])))
        if due:
            clients.keep(state, whole_of(logs))
    logs += [fetch(*more) for more in running]  # where it was enough
    whole = whole_of(logs)
    if len(logs) > 1:
        clients.keep(state, whole)
        kept.write()
    return state, whole
